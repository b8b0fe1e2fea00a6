// Reads a node's snapshot inside other documents. For .cc files.
#pragma once

#include "core/cluster.h"
#include "core/json_reader.h"

namespace adaptive_train {

/// Reads the output of ToJson(Node); errors are in the reader's `error`.
Node ReadNode(const JsonReader& reader);

}  // namespace adaptive_train
