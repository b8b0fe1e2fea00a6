// Opens the store for a command and takes in ledgers that were written while it was unusable.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "db/profile_store.h"
#include "db/store_location.h"

namespace adaptive_train {

/// A store that includes the entries of all readable ledgers.
struct KnownStore {
  std::unique_ptr<ProfileStore> store;
  /// Why the chosen store is not in use. `store` is then in memory, filled from the listed
  /// ledgers.
  std::optional<Error> trouble;
  /// For people: what was taken in and what could not be, and that a new store will not stay.
  std::vector<std::string> notes;
};

/// Opens the chosen store and takes in the listed ledgers and `more`. A ledger is unlisted once it
/// is in a store that stays and its run has ended or its launcher is certainly gone. With a launch
/// budget, a service is not given long ledgers. Fails only if the store is required: kUsage, kStore.
/// Blocks as opening the store does, and while it reads the ledgers.
Result<KnownStore> OpenKnownStore(const StoreChoice& choice,
                                  const std::vector<std::filesystem::path>& more = {},
                                  const StoreOptions& options = {});

/// The same for a command that only shows what is stored. Makes no file unless the store is not
/// required and has ledgers to take in; without a file, gives an empty store in memory.
Result<KnownStore> ReadKnownStore(const StoreChoice& choice);

}  // namespace adaptive_train
