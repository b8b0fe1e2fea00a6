#include "launcher/commands/store_notes.h"

#include <fmt/format.h>

namespace adaptive_train {

void TellNotes(const KnownStore& known, std::string_view verb) {
  if (known.trouble) {
    fmt::print(stderr, "adaptive-train {}: warning: {}; using what the runs' ledgers tell\n", verb,
               known.trouble->message);
  }
  for (const std::string& note : known.notes)
    fmt::print(stderr, "adaptive-train {}: {}\n", verb, note);
}

void TellTrouble(const Error& error, std::string_view verb) {
  fmt::print(stderr, "adaptive-train {}: warning: {}; going on without what it holds\n", verb,
             error.message);
}

}  // namespace adaptive_train
