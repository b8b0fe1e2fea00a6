// Opens the store that a command is to use, with what ledgers hold for it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "db/profile_store.h"

namespace adaptive_train {

/// A store with all that is known.
struct KnownStore {
  ProfileStore store;
  /// Why the default store is not in use; then `store` is one in memory that holds what the listed
  /// ledgers tell.
  std::optional<Error> trouble;
  std::vector<std::string> notes;  // what was taken in, and what could not be; for people
};

/// Opens the store that `typed` means (ParseStoreLocation) and takes in the listed ledgers and
/// those of `more`. A ledger whose run has ended, or whose launcher surely is gone, is taken off the
/// list once it is in a store with a file. Fails only where a store is named: kUsage, kStore. Blocks
/// as ProfileStore::Open does, and for the reading of the ledgers.
Result<KnownStore> OpenKnownStore(const std::string& typed,
                                  const std::vector<std::filesystem::path>& more = {},
                                  const ProfileStore::OpenOptions& options = {});

/// The same for a command that only shows what is stored. Makes no file unless the default store has
/// ledgers to take in; without one, gives an empty store in memory.
Result<KnownStore> ReadKnownStore(const std::string& typed);

}  // namespace adaptive_train
