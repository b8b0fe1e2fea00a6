// What a check of `adaptive-train doctor` has found.
#pragma once

#include <string>

namespace adaptive_train {

enum class Severity {
  kGood,
  kNote,     // worth knowing, nothing to mend at once
  kTrouble,  // something will fail or be lost
};

/// One line each. `why` and `mend` are empty where all is well.
struct Finding {
  std::string subject;  // "store"
  Severity severity = Severity::kGood;
  std::string what;
  std::string why;   // why it matters
  std::string mend;  // the command or line that mends it
};

}  // namespace adaptive_train
