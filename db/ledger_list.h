// Where ledgers are found again: a folder beside the default store with a small file for each run
// that wrote one. Such files are made and removed as a whole, which holds on network file systems
// too.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/result.h"

namespace adaptive_train {

/// $XDG_STATE_HOME/adaptive-train/ledgers or ~/.local/state/adaptive-train/ledgers; empty where
/// there is no home folder.
std::filesystem::path LedgerListFolder();

/// Lists the ledger at the absolute path `ledger`, written by the run `uid`. Errors:
/// ExitCode::kStore, one line.
Result<void> ListLedger(const std::string& uid, const std::filesystem::path& ledger);

/// A ledger that is listed.
struct ListedLedger {
  std::string uid;
  std::filesystem::path ledger;
};

/// In the order of the uids; what cannot be read is left out.
std::vector<ListedLedger> ListedLedgers();

/// Takes the ledger of the run `uid` off the list.
void UnlistLedger(const std::string& uid);

}  // namespace adaptive_train
