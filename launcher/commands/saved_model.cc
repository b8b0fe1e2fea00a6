#include "launcher/commands/saved_model.h"

#include <fmt/format.h>

#include <filesystem>

#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/checkpoint/checkpoint_reader.h"

namespace adaptive_train {
namespace {

namespace fs = std::filesystem;

bool FileExists(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

/// A checkpoint's folder, and the newer ones that are damaged.
struct Found {
  std::string checkpoint;
  std::vector<std::string> refused;
};

/// The newest undamaged checkpoint in a folder of checkpoints.
Result<Found> NewestIn(const fs::path& folder) {
  const CheckpointFolder checkpoints(folder.string());
  const auto judge = [&](std::int64_t step) -> Result<void> {
    auto reader = CheckpointReader::Open(checkpoints.PathOf(step));
    if (!reader) return tl::unexpected(reader.error());
    return reader->Verify();
  };
  auto newest = checkpoints.NewestValid(judge);
  if (!newest) return tl::unexpected(newest.error());
  if (newest->step) return Found{checkpoints.PathOf(*newest->step), std::move(newest->refused)};
  if (!newest->refused.empty())
    return Fail(newest->refused.front() + "; there is no other checkpoint in " + folder.string(),
                ExitCode::kRankFailure);
  return Fail(fmt::format("{}: holds no complete checkpoint", folder.string()));
}

Result<Found> CheckpointOf(const fs::path& path) {
  if (FileExists(path / "manifest.json")) return Found{path.string(), {}};
  if (!FileExists(path / "config.resolved.toml")) return NewestIn(path);
  const fs::path own = path / "checkpoints";
  if (FileExists(own)) return NewestIn(own);
  auto config = LoadConfig((path / "config.resolved.toml").string(), {});
  if (!config) return tl::unexpected(config.error());
  return NewestIn(config->checkpoint.dir);
}

Result<std::string> ConfigOf(const fs::path& path, const fs::path& checkpoint) {
  for (const fs::path& place :
       {path / "config.resolved.toml", checkpoint.parent_path() / "config.toml",
        checkpoint.parent_path().parent_path() / "config.resolved.toml"}) {
    if (FileExists(place)) return place.string();
  }
  return Fail(
      fmt::format("{}: no configuration beside it; name the run's folder instead, or --config FILE",
                  checkpoint.string()));
}

}  // namespace

Result<SavedModel> FindSavedModel(const std::string& path, const std::string& config) {
  std::error_code error;
  const fs::path place = fs::canonical(path, error);
  if (error) return Fail(fmt::format("{}: {}", path, error.message()));
  if (!fs::is_directory(place, error)) {
    return Fail(fmt::format("{}: not a folder; allowed are a run's folder and a checkpoint", path));
  }
  auto found = CheckpointOf(place);
  if (!found) return tl::unexpected(found.error());
  Result<std::string> file = config;
  if (config.empty()) file = ConfigOf(place, found->checkpoint);
  if (!file) return tl::unexpected(file.error());
  auto loaded = LoadConfig(*file, {});
  if (!loaded) return tl::unexpected(loaded.error());
  return SavedModel{std::move(found->checkpoint), std::move(*loaded), std::move(found->refused)};
}

}  // namespace adaptive_train
