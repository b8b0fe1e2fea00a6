#include "launcher/commands/saved_model.h"

#include <fmt/format.h>

#include <filesystem>

#include "runtime/checkpoint/checkpoint_folder.h"

namespace adaptive_train {
namespace {

namespace fs = std::filesystem;

bool Exists(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

/// The newest checkpoint of a folder of them.
Result<std::string> NewestIn(const fs::path& folder) {
  const CheckpointFolder checkpoints(folder.string());
  auto steps = checkpoints.Complete();
  if (!steps) return tl::unexpected(steps.error());
  if (steps->empty()) return Fail(fmt::format("{}: holds no complete checkpoint", folder.string()));
  return checkpoints.PathOf(steps->back());
}

Result<std::string> CheckpointOf(const fs::path& path) {
  if (Exists(path / "manifest.json")) return path.string();
  if (!Exists(path / "config.resolved.toml")) return NewestIn(path);
  const fs::path own = path / "checkpoints";
  if (Exists(own)) return NewestIn(own);
  auto config = LoadConfig((path / "config.resolved.toml").string(), {});
  if (!config) return tl::unexpected(config.error());
  return NewestIn(config->checkpoint.dir);
}

Result<std::string> ConfigOf(const fs::path& path, const fs::path& checkpoint) {
  for (const fs::path& place :
       {path / "config.resolved.toml", checkpoint.parent_path() / "config.toml",
        checkpoint.parent_path().parent_path() / "config.resolved.toml"}) {
    if (Exists(place)) return place.string();
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
  auto checkpoint = CheckpointOf(place);
  if (!checkpoint) return tl::unexpected(checkpoint.error());
  Result<std::string> file = config;
  if (config.empty()) file = ConfigOf(place, *checkpoint);
  if (!file) return tl::unexpected(file.error());
  auto loaded = LoadConfig(*file, {});
  if (!loaded) return tl::unexpected(loaded.error());
  return SavedModel{std::move(*checkpoint), std::move(*loaded)};
}

}  // namespace adaptive_train
