// A node's snapshot inside of other documents. For .cc files.
#pragma once

#include "core/cluster.h"
#include "core/json_reader.h"

namespace adaptive_train {

/// Reads what ToJson(Node) writes; what is wrong stands in the reader's error.
Node ReadNode(const JsonReader& reader);

}  // namespace adaptive_train
