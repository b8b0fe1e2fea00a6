// The list of ledgers: a folder beside the default store with a small file for each run that wrote
// one. Each file is created and removed atomically, which also works on network file systems.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/result.h"

namespace adaptive_train {

/// $XDG_STATE_HOME/adaptive-train/ledgers or ~/.local/state/adaptive-train/ledgers; empty if there
/// is no home folder.
std::filesystem::path LedgerListFolder();

/// Lists the ledger at the absolute path `ledger`, written by run `uid`. Errors: ExitCode::kStore,
/// one line.
Result<void> ListLedger(const std::string& uid, const std::filesystem::path& ledger);

/// A listed ledger.
struct ListedLedger {
  std::string uid;
  std::filesystem::path ledger;
};

/// In the order of uids; unreadable files are skipped.
std::vector<ListedLedger> ListedLedgers();

/// Takes the ledger of run `uid` off the list.
void UnlistLedger(const std::string& uid);

}  // namespace adaptive_train
