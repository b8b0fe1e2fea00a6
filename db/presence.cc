#include "db/presence.h"

#include "db/database.h"

namespace adaptive_train {
namespace {

constexpr double kAround = 600;  // seconds

constexpr const char* kIsSeen =
    "SELECT since, until FROM presence WHERE cluster = ?1 AND node = ?2 AND owner = ?3";
constexpr const char* kSee =
    "INSERT INTO presence (cluster, node, owner, since, until) VALUES (?1, ?2, ?3, ?4, ?5)"
    " ON CONFLICT (cluster, node, owner) DO UPDATE SET since = min(since, excluded.since),"
    "                           until = max(until, excluded.until)";

}  // namespace

Presence::Presence(Database& database, std::string cluster)
    : cluster_(std::move(cluster)), seen_(std::make_unique<Statement>(database, kIsSeen)) {}

bool Presence::Counts(Owner owner, const std::string& node, EpochSeconds time) {
  if (!seen_) return true;
  const auto [known, is_new] = known_.try_emplace({owner, node});
  if (is_new) {
    seen_->Bind(cluster_, node, owner);
    if (seen_->Step()) {
      PresenceTime& seen = known->second.emplace();
      RowReader(*seen_) >> seen.since >> seen.until;
    }
  }
  const auto& seen = known->second;
  return seen && seen->since - kAround <= time && time <= seen->until + kAround;
}

void NotePresence(Database& database, const std::string& cluster, Owner owner,
                  const std::vector<std::string>& nodes, PresenceTime time) {
  Statement see(database, kSee);
  for (const std::string& node : nodes) {
    see.Bind(cluster, node, owner, time.since, time.until).Run();
  }
}

}  // namespace adaptive_train
