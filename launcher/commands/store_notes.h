// What a command reports about the store that it opened.
#pragma once

#include <string_view>

#include "db/known_store.h"

namespace adaptive_train {

/// Prints on stderr, a line each: why the default store is not in use, and what was taken in.
void TellNotes(const KnownStore& known, std::string_view verb);

/// Prints on stderr why the default store, which has opened, could not be read.
void TellTrouble(const Error& error, std::string_view verb);

}  // namespace adaptive_train
