// A profile inside of other documents. For .cc files.
#pragma once

#include "core/json_reader.h"
#include "core/profile.h"

namespace adaptive_train {

/// Reads what ToJson(Profile) writes; what is wrong stands in the reader's error.
Profile ReadProfile(const JsonReader& reader);

}  // namespace adaptive_train
