// Who may see other users' jobs.
#pragma once

#include <sys/types.h>

#include <map>
#include <set>
#include <string>
#include <vector>

namespace adaptive_train {

/// They read what is private to others, and write as themselves alone.
struct Rights {
  std::set<uid_t> operators;                               // see all
  std::map<uid_t, std::vector<std::string>> coordinators;  // see the jobs of these accounts
};

}  // namespace adaptive_train
