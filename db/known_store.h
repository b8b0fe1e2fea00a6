// Opens the store for a command and takes in ledgers that were written while it was unusable.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "db/profile_store.h"

namespace adaptive_train {

/// A store that includes the entries of all readable ledgers.
struct KnownStore {
  ProfileStore store;
  /// Why the chosen store is not in use. `store` is then in memory, filled from the listed
  /// ledgers.
  std::optional<Error> trouble;
  /// For people: what was taken in and what could not be, and that a new store will not stay.
  std::vector<std::string> notes;
};

/// Opens the chosen store and takes in the listed ledgers and `more`. A ledger is unlisted once it
/// is in a store with a file and its run has ended or its launcher is certainly gone. Fails only if
/// the store is required: kUsage, kStore. Blocks as ProfileStore::Open does, and while it reads the
/// ledgers.
Result<KnownStore> OpenKnownStore(const StoreChoice& choice,
                                  const std::vector<std::filesystem::path>& more = {},
                                  const ProfileStore::OpenOptions& options = {});

/// The same for a command that only shows what is stored. Makes no file unless the store is not
/// required and has ledgers to take in; without a file, gives an empty store in memory.
Result<KnownStore> ReadKnownStore(const StoreChoice& choice);

}  // namespace adaptive_train
