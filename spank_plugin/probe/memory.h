// The node's memory.
#pragma once

#include <string>

#include "core/cluster.h"

namespace adaptive_train::probe {

/// Fills node.memory from ROOT/proc/meminfo.
void ReadMemory(Node& node, const std::string& root = "");

}  // namespace adaptive_train::probe
