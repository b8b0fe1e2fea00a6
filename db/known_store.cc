#include "db/known_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "db/file_store.h"
#include "db/file_system.h"
#include "db/launcher_process.h"
#include "db/ledger_file.h"
#include "db/ledger_list.h"
#include "db/remote_store.h"

namespace adaptive_train {
namespace {

namespace fs = std::filesystem;

using OpenedStore = Result<std::unique_ptr<ProfileStore>>;

/// Of ledgers, by a launch that waits for a service: what it answers in a few milliseconds.
constexpr std::uintmax_t kBytesTakenAtLaunch = std::uintmax_t{1} << 20;

/// A file that is certainly not there.
bool IsAbsent(const StoreLocation& location) {
  std::error_code error;
  return !IsService(location) && !fs::exists(location.path, error) && !error;
}

template <class Store>
OpenedStore Owned(Result<Store> store) {
  if (!store) return tl::unexpected(store.error());
  return std::make_unique<Store>(std::move(*store));
}

OpenedStore OpenAt(const StoreLocation& location, const StoreOptions& options) {
  return IsService(location) ? Owned(RemoteStore::Open(location, options))
                             : Owned(FileStore::Open(location, options));
}

/// Said when the file is made, so once in the life of each.
void TellIfItGoes(KnownStore& known, const fs::path& file) {
  const std::string why = WhyFilesGoIn(file);
  if (why.empty()) return;
  known.notes.push_back(
      fmt::format("profile store {} {}: name one on a local disk with --store or "
                  "ADAPTIVE_TRAIN_STORE to keep what is learned",
                  file.string(), why));
}

/// A ledger that was removed with its run folder is taken off the list. A ledger stays listed if
/// its file system is not mounted here.
void TellMissing(KnownStore& known, const ListedLedger& listed) {
  std::error_code error;
  const bool gone = fs::exists(listed.ledger.parent_path().parent_path(), error);
  if (gone) UnlistLedger(listed.uid);
  known.notes.push_back(
      fmt::format("ledger {}: {}", listed.ledger.string(),
                  gone ? "removed before a store took it in" : "not to be reached from this host"));
}

/// Every ledger once: the listed ones and `more`.
std::vector<fs::path> LedgersToRead(KnownStore& known, const std::vector<fs::path>& more) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (const fs::path& path : more)
    if (fs::exists(path, error)) paths.push_back(path.lexically_normal());
  for (const ListedLedger& one : ListedLedgers()) {
    if (fs::exists(one.ledger, error)) {
      paths.push_back(one.ledger);
    } else {
      TellMissing(known, one);
    }
  }
  std::sort(paths.begin(), paths.end());
  paths.erase(std::unique(paths.begin(), paths.end()), paths.end());
  return paths;
}

/// Takes in all runs of a ledger. Returns the uids of runs that will add nothing more.
std::vector<std::string> TakeIn(KnownStore& known, const fs::path& path) {
  std::vector<std::string> complete;
  auto content = ReadLedger(path);
  if (!content) {
    known.notes.push_back(content.error().message);
    return complete;
  }
  known.notes.insert(known.notes.end(), content->notes.begin(), content->notes.end());
  for (const RunLedger& run : content->runs) {
    auto taken = known.store->TakeIn(run);
    if (!taken) {
      known.notes.push_back(
          fmt::format("ledger {}: not taken in: {}", path.string(), taken.error().message));
      continue;
    }
    if (*taken > 0)
      known.notes.push_back(fmt::format("ledger {}: {} entries taken in", path.string(), *taken));
    if (run.Ended() || IsGone(*run.job.launcher)) complete.push_back(run.job.uid);
  }
  return complete;
}

}  // namespace

Result<KnownStore> OpenKnownStore(const StoreChoice& choice, const std::vector<fs::path>& more,
                                  const StoreOptions& options) {
  const auto location = ParseStoreLocation(choice);
  const bool is_new = location && IsAbsent(*location);
  auto store =
      location.and_then([&](const StoreLocation& place) { return OpenAt(place, options); });
  std::optional<Error> trouble;
  if (!store && choice.required) return tl::unexpected(store.error());
  if (!store) {
    trouble = store.error();
    store = Owned(FileStore::InMemory());
    if (!store) return tl::unexpected(store.error());
  }
  KnownStore known{std::move(*store), std::move(trouble), {}};
  if (is_new && !known.trouble) TellIfItGoes(known, location->path);
  const bool hurried = location && IsService(*location) && options.launch_budget;
  std::uintmax_t bytes = 0;
  for (const fs::path& path : LedgersToRead(known, more)) {
    std::error_code error;
    bytes += fs::file_size(path, error);
    if (hurried && bytes > kBytesTakenAtLaunch) {
      known.notes.push_back(
          fmt::format("ledger {}: left for `adaptive-train jobs`: it is long, and a launch does "
                      "not wait for it",
                      path.string()));
      continue;
    }
    for (const std::string& uid : TakeIn(known, path))
      if (!known.trouble) UnlistLedger(uid);
  }
  if (known.trouble) known.notes.clear();  // the failed store keeps nothing of what was read
  return known;
}

Result<KnownStore> ReadKnownStore(const StoreChoice& choice) {
  const auto location = ParseStoreLocation(choice);
  if (!location && choice.required) return tl::unexpected(location.error());
  if (location && IsAbsent(*location) && (choice.required || ListedLedgers().empty())) {
    auto empty = Owned(FileStore::InMemory());
    if (!empty) return tl::unexpected(empty.error());
    return KnownStore{std::move(*empty), std::nullopt, {}};
  }
  return OpenKnownStore(choice);
}

}  // namespace adaptive_train
