// Which of the clusters that a store knows a command shows.
#pragma once

#include <string>
#include <vector>

#include "core/result.h"

namespace adaptive_train {

/// The cluster that --cluster names, the only one that is stored, or the one of this host. Exit
/// code: kUsage.
Result<std::string> ChooseCluster(const std::string& named, const std::vector<std::string>& stored);

}  // namespace adaptive_train
