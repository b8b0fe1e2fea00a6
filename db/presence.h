// On which nodes users' jobs have run, by Slurm's word: whose reports of a node count for others.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "db/database.h"
#include "db/owner.h"
#include "db/records.h"

namespace adaptive_train {

/// Throws DatabaseError and must be used inside one transaction.
class Presence {
 public:
  /// Everybody's reports count: nobody asks Slurm.
  Presence() = default;
  /// Those of users of whom Slurm has seen a job there.
  Presence(Database& database, std::string cluster);

  bool Counts(Owner owner, const std::string& node);

 private:
  std::string cluster_;
  std::unique_ptr<Statement> seen_;
  std::map<std::pair<Owner, std::string>, bool> known_;
};

/// Notes that Slurm has seen a job of `owner` on the nodes.
void NotePresence(Database& database, const std::string& cluster, Owner owner,
                  const std::vector<std::string>& nodes, EpochSeconds now);

}  // namespace adaptive_train
