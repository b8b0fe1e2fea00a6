#include "db/presence.h"

#include "db/database.h"

namespace adaptive_train {
namespace {

constexpr const char* kIsSeen =
    "SELECT 1 FROM presence WHERE cluster = ?1 AND node = ?2 AND owner = ?3";
constexpr const char* kSee =
    "INSERT OR REPLACE INTO presence (cluster, node, owner, seen_at) VALUES (?1, ?2, ?3, ?4)";

}  // namespace

Presence::Presence(Database& database, std::string cluster)
    : cluster_(std::move(cluster)), seen_(std::make_unique<Statement>(database, kIsSeen)) {}

bool Presence::Counts(Owner owner, const std::string& node) {
  if (!seen_) return true;
  const auto [known, is_new] = known_.try_emplace({owner, node});
  if (is_new) {
    seen_->Bind(cluster_, node, owner);
    known->second = seen_->Step();
  }
  return known->second;
}

void NotePresence(Database& database, const std::string& cluster, Owner owner,
                  const std::vector<std::string>& nodes, EpochSeconds now) {
  Statement see(database, kSee);
  for (const std::string& node : nodes) {
    see.Bind(cluster, node, owner, now).Run();
  }
}

}  // namespace adaptive_train
