#include "db/presence.h"

#include "db/statement.h"

namespace adaptive_train {
namespace {

constexpr const char* kIsSeen =
    "SELECT 1 FROM presence WHERE cluster = ?1 AND node = ?2 AND owner = ?3";
constexpr const char* kSee =
    "INSERT OR REPLACE INTO presence (cluster, node, owner, seen_at) VALUES (?1, ?2, ?3, ?4)";

}  // namespace

Presence::Presence(StoreDatabase& database, std::string cluster)
    : cluster_(std::move(cluster)), seen_(std::make_unique<Prepared>(database, kIsSeen)) {}

bool Presence::Counts(Owner owner, const std::string& node) {
  if (!seen_) return true;
  const auto [known, is_new] = known_.try_emplace({owner, node});
  if (is_new) {
    (*seen_)->reset();
    BindAll(*seen_, cluster_, node, owner);
    known->second = (*seen_)->executeStep();
  }
  return known->second;
}

void NotePresence(StoreDatabase& database, const std::string& cluster, Owner owner,
                  const std::vector<std::string>& nodes, EpochSeconds now) {
  Prepared see(database, kSee);
  for (const std::string& node : nodes) {
    BindAll(see, cluster, node, owner, now);
    see->exec();
    see->reset();
  }
}

}  // namespace adaptive_train
