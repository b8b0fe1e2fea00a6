#include "db/ledger_list.h"

#include <algorithm>
#include <system_error>

#include "core/file_io.h"
#include "db/store_location.h"

namespace adaptive_train {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kUidLength = 32;
constexpr std::size_t kMaxPathBytes = 1 << 14;

}  // namespace

fs::path LedgerListFolder() {
  const auto store = ParseStoreLocation({});
  return store ? store->path.parent_path() / "ledgers" : fs::path();
}

Result<void> ListLedger(const std::string& uid, const fs::path& ledger) {
  const fs::path folder = LedgerListFolder();
  if (folder.empty()) {
    return Fail("there is no home folder to list ledgers in: set HOME to an absolute path",
                ExitCode::kStore);
  }
  const bool listed_before = fs::exists(folder);
  auto done = MakeFolder(folder.string());
  if (done && !listed_before) {
    std::error_code ignored;  // best effort: these files hold only paths
    fs::permissions(folder, fs::perms::owner_all, ignored);
  }
  if (done) done = WriteFile((folder / uid).string(), ledger.string() + "\n");
  if (!done) return Fail(done.error().message, ExitCode::kStore);
  return {};
}

std::vector<ListedLedger> ListedLedgers() {
  std::vector<ListedLedger> ledgers;
  std::error_code error;
  const fs::path folder = LedgerListFolder();
  if (folder.empty()) return ledgers;
  for (fs::directory_iterator file(folder, error), end; !error && file != end;
       file.increment(error)) {
    const std::string uid = file->path().filename().string();
    if (uid.size() != kUidLength) continue;  // a file that is still being written has a longer name
    auto text = ReadFile(file->path().string(), kMaxPathBytes);
    if (!text || text->empty() || text->front() != '/' || text->back() != '\n') continue;
    ledgers.push_back({uid, text->substr(0, text->size() - 1)});
  }
  std::sort(ledgers.begin(), ledgers.end(),
            [](const ListedLedger& a, const ListedLedger& b) { return a.uid < b.uid; });
  return ledgers;
}

void UnlistLedger(const std::string& uid) {
  std::error_code ignored;  // another process may have unlisted it
  fs::remove(LedgerListFolder() / uid, ignored);
}

}  // namespace adaptive_train
