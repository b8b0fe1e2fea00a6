// When and on which nodes users' jobs have run, by Slurm's word: whose reports of a node count for
// others.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "db/database.h"
#include "db/owner.h"
#include "db/records.h"

namespace adaptive_train {

/// In which somebody's jobs ran on a node.
struct PresenceTime {
  EpochSeconds since = 0, until = 0;
};

/// Throws DatabaseError and must be used inside one transaction.
class Presence {
 public:
  /// Everybody's reports count: nobody asks Slurm.
  Presence() = default;
  /// Those of users whose jobs Slurm has seen there at that time.
  Presence(Database& database, std::string cluster);

  /// What `owner` reports of `node` at `time`, or a few minutes before or after: clocks differ, and
  /// a failure is found out late.
  bool Counts(Owner owner, const std::string& node, EpochSeconds time);

 private:
  std::string cluster_;
  std::unique_ptr<Statement> seen_;
  std::map<std::pair<Owner, std::string>, std::optional<PresenceTime>> known_;
};

/// Notes that Slurm has seen a job of `owner` on the nodes. With what was noted before, the time
/// from the first job to the last is one.
void NotePresence(Database& database, const std::string& cluster, Owner owner,
                  const std::vector<std::string>& nodes, PresenceTime time);

}  // namespace adaptive_train
