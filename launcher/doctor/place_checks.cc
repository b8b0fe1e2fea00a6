#include "launcher/doctor/place_checks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "core/file_io.h"
#include "core/launch_settings.h"
#include "db/file_store.h"
#include "db/file_system.h"
#include "db/remote_store.h"
#include "launcher/steps/slurm_step.h"

namespace adaptive_train {
namespace {

namespace fs = std::filesystem;

/// `path` itself, or what is nearest above it and there.
fs::path NearestThere(const fs::path& path) {
  std::error_code error;
  fs::path nearest = fs::weakly_canonical(fs::absolute(path, error), error);
  while (!fs::exists(nearest, error) && nearest.has_relative_path())
    nearest = nearest.parent_path();
  return nearest;
}

/// Why nothing can be made in `place`; empty if something can.
std::string WhyNothingIsMadeIn(const fs::path& place) {
  std::error_code error;
  if (!fs::is_directory(place, error)) return place.string() + " is not a folder";
  if (::access(place.c_str(), W_OK | X_OK) == 0) return "";
  return fmt::format("{} is not writable to you: {}", place.string(), std::strerror(errno));
}

constexpr const char* kNameAFile =
    "--store, ADAPTIVE_TRAIN_STORE or `store` in a settings file with file:PATH on a local disk";

Finding StoreTrouble(const std::string& what, const std::string& mend = kNameAFile) {
  return {"store", Severity::kTrouble, what,
          "runs go on and write ledgers, but what they learn waits for a store that opens", mend};
}

/// Of the store that adaptive-traind keeps.
Finding CheckService(const StoreLocation& location) {
  const auto store = RemoteStore::Open(location);
  if (!store)
    return StoreTrouble(
        store.error().message,
        location.kind == StoreLocation::Kind::kLocalService
            ? fmt::format("start adaptive-traind on this host, or {}", kNameAFile)
            : fmt::format("start adaptive-traind at {} with --tcp, set store_uid to what "
                          "its log tells, or {}",
                          location.address, kNameAFile));
  return {"store", Severity::kGood, NameOf(location) + ": adaptive-traind answers", "", ""};
}

/// Of a store that no run has made yet.
Finding CheckPlaceOfStore(const fs::path& store) {
  const fs::path place = NearestThere(store.parent_path());
  const auto network = NetworkFileSystemOf(place);
  if (!network) return StoreTrouble(network.error().message);
  if (!network->empty())
    return StoreTrouble(
        fmt::format("{} would lie on a network file system ({})", store.string(), *network));
  if (const std::string why = WhyNothingIsMadeIn(place); !why.empty())
    return StoreTrouble(fmt::format("{} cannot be made: {}", store.string(), why));
  return {"store", Severity::kGood, store.string() + ": not there yet; the first run makes it", "",
          ""};
}

/// Whether a file made here is seen from every node of the job.
Finding CheckFromEveryNode(const fs::path& folder, const Allocation& allocation) {
  // Doctors on several nodes may look at once: the name is made unique in the folder itself.
  std::string token = (folder / ".adaptive-train-doctor.XXXXXX").string();
  if (const int made = ::mkstemp(token.data()); made >= 0) ::close(made);
  Result<std::string> seen = WriteFile(token, token + "\n").and_then([&] {
    return RunOnEveryHost(allocation.hosts.size(), {"cat", token},
                          DeadlinesOf(LaunchConfig{}, allocation.hosts.size()).short_step);
  });
  ::unlink(token.c_str());
  if (seen) {
    const auto answers = std::count(seen->begin(), seen->end(), '\n');
    return {"run folder", Severity::kGood,
            fmt::format("{} is seen from {} nodes", folder.string(), answers), "", ""};
  }
  return {"run folder", Severity::kTrouble,
          fmt::format("{} is not the same on all nodes: {}", folder.string(), seen.error().message),
          "ranks read their orders from the run folder and write checkpoints there",
          "--run-dir, or a folder of submission, on a file system that all nodes mount"};
}

}  // namespace

Finding CheckStore(const StoreChoice& choice) {
  const auto location = ParseStoreLocation(choice);
  if (!location) return StoreTrouble(location.error().message);
  if (IsService(*location)) return CheckService(*location);
  std::error_code error;
  if (!fs::exists(location->path, error) && !error) return CheckPlaceOfStore(location->path);
  StoreOptions options;
  options.create = false;
  const auto store = FileStore::Open(*location, options);
  if (!store) return StoreTrouble(store.error().message);
  const std::string path = store->Path().string();
  const std::string goes = WhyFilesGoIn(store->Path());
  if (goes.empty()) return {"store", Severity::kGood, path, "", ""};
  return {
      "store", Severity::kNote, path + " " + goes, "later jobs learn nothing from this one",
      "name a store on a local disk: --store, ADAPTIVE_TRAIN_STORE, or `store` in a settings file"};
}

Finding CheckRunFolder(const std::string& folder, const Allocation& allocation) {
  const char* subject = "run folder";
  const fs::path nearest = NearestThere(folder);
  if (const std::string why = WhyNothingIsMadeIn(nearest); !why.empty())
    return {subject, Severity::kTrouble, why, "a run makes its folder there",
            "--run-dir, or another folder of submission"};
  if (allocation.in_slurm && allocation.hosts.size() > 1)
    return CheckFromEveryNode(nearest, allocation);
  const auto network = NetworkFileSystemOf(nearest);
  if (network && network->empty())
    return {subject, Severity::kNote, nearest.string() + " looks like a disk of this host alone",
            "ranks on other nodes must see the run folder",
            "call doctor in a job of two nodes to see whether they do"};
  return {subject, Severity::kGood,
          fmt::format("{} ({})", nearest.string(), network.value_or("unknown file system")), "",
          ""};
}

}  // namespace adaptive_train
