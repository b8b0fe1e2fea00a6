#include "runtime/checkpoint/checkpoint_folder.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>

#include "core/json.h"

namespace adaptive_train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrefix = "step-";
constexpr std::size_t kMaxManifestBytes = 64u << 20;

tl::unexpected<Error> FailAt(const std::string& path, const std::string& why) {
  return Fail(path + ": " + why, ExitCode::kRankFailure);
}

using Arenas = std::array<std::span<float>, 3>;

Arenas ArenasOf(const TrainingState& state) {
  return {state.parameters, state.first_moments, state.second_moments};
}

std::string HashOf(const Arenas& arenas) {
  XXH3_state_t* state = XXH3_createState();
  XXH3_64bits_reset(state);
  for (const auto& arena : arenas) XXH3_64bits_update(state, arena.data(), arena.size_bytes());
  const auto hash = XXH3_64bits_digest(state);
  XXH3_freeState(state);
  return fmt::format("{:016x}", hash);
}

nlohmann::ordered_json RangesOf(const ParameterLayout& layout) {
  auto ranges = nlohmann::ordered_json::array();
  for (const ParameterRange& range : layout.ranges()) {
    ranges.push_back({{"name", range.name},
                      {"shape", range.shape},
                      {"offset", range.global_offset},
                      {"count", range.count}});
  }
  return ranges;
}

Result<void> WriteArenas(const std::string& path, const Arenas& arenas) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) return FailAt(path, std::strerror(errno));
  int error = 0;
  for (const auto& arena : arenas) {
    auto bytes = std::as_bytes(arena);
    while (!bytes.empty() && error == 0) {
      const ssize_t n = ::write(fd, bytes.data(), std::min<std::size_t>(bytes.size(), 1u << 26));
      if (n < 0 && errno != EINTR) error = errno;
      if (n > 0) bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
  }
  if (error == 0 && ::fsync(fd) != 0) error = errno;
  if (::close(fd) != 0 && error == 0) error = errno;
  if (error != 0) return FailAt(path, std::strerror(error));
  return {};
}

Result<void> ReadArenas(const std::string& path, const Arenas& arenas) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return FailAt(path, std::strerror(errno));
  std::string why;
  for (const auto& arena : arenas) {
    auto bytes = std::as_writable_bytes(arena);
    while (!bytes.empty() && why.empty()) {
      const ssize_t n = ::read(fd, bytes.data(), std::min<std::size_t>(bytes.size(), 1u << 26));
      if (n < 0 && errno != EINTR) why = std::strerror(errno);
      if (n == 0) why = "shorter than its manifest says";
      if (n > 0) bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
  }
  ::close(fd);
  if (!why.empty()) return FailAt(path, why);
  return {};
}

/// Makes a rename in the folder last. File systems that cannot sync a folder have done what they
/// can.
void SyncFolder(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  ::fsync(fd);
  ::close(fd);
}

}  // namespace

std::string CheckpointFolder::FolderOf(std::int64_t step) const {
  return fmt::format("{}/{}{:08}", path_, kPrefix, step);
}

std::vector<std::int64_t> CheckpointFolder::Complete() const {
  std::vector<std::int64_t> steps;
  std::error_code error;
  for (fs::directory_iterator it(path_, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.rfind(kPrefix, 0) != 0) continue;
    const char* digits = name.data() + std::strlen(kPrefix);
    std::int64_t step = 0;
    const auto [last, bad] = std::from_chars(digits, name.data() + name.size(), step);
    std::error_code ignored;
    if (bad == std::errc() && last == name.data() + name.size() &&
        fs::exists(it->path() / "DONE", ignored))
      steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::optional<std::int64_t> CheckpointFolder::Newest() const {
  const auto steps = Complete();
  return steps.empty() ? std::nullopt : std::optional(steps.back());
}

Result<void> CheckpointFolder::WriteInto(const std::string& folder, const ParameterLayout& layout,
                                         const TrainingState& state) const {
  const Arenas arenas = ArenasOf(state);
  auto done = WriteArenas(folder + "/state.bin", arenas);
  if (!done) return done;
  const nlohmann::ordered_json manifest = {
      {"format_version", kFormatVersion},
      {"step", state.step},
      {"updates", state.updates},
      {"identity", state.identity},
      {"arenas", {"parameters", "first_moments", "second_moments"}},
      {"elements", layout.size()},
      {"state_xxh3", HashOf(arenas)},
      {"ranges", RangesOf(layout)}};
  done = WriteFile(folder + "/manifest.json", manifest.dump(1) + "\n");
  if (!done) return done;
  return WriteFile(folder + "/DONE", "");
}

Result<std::string> CheckpointFolder::Write(const ParameterLayout& layout,
                                            const TrainingState& state) const {
  const std::string final_path = FolderOf(state.step);
  const std::string temporary = final_path + ".tmp";
  std::error_code error;
  if (fs::exists(final_path + "/DONE", error))
    return final_path;  // the same step, hence the same state
  for (const auto& old : {temporary, final_path}) fs::remove_all(old, error);
  fs::create_directories(temporary, error);
  if (error) return FailAt(temporary, error.message());
  auto done = WriteInto(temporary, layout, state);
  if (done) {
    fs::rename(temporary, final_path, error);
    if (error) done = FailAt(final_path, error.message());
    SyncFolder(path_);
  }
  if (!done) {
    fs::remove_all(temporary, error);
    auto failure = done.error();
    failure.exit_code = ExitCode::kRankFailure;
    return tl::unexpected(failure);
  }
  Prune();
  return final_path;
}

void CheckpointFolder::Prune() const {
  const auto steps = Complete();
  std::error_code ignored;
  // What a writer that was killed left behind.
  for (fs::directory_iterator it(path_, ignored), end; !ignored && it != end;
       it.increment(ignored)) {
    const std::string name = it->path().filename().string();
    std::error_code unimportant;
    if (name.rfind(kPrefix, 0) == 0 && !fs::exists(it->path() / "DONE", unimportant)) {
      fs::remove_all(it->path(), unimportant);
    }
  }
  for (std::size_t i = 0; i + static_cast<std::size_t>(keep_) < steps.size(); ++i) {
    // The marker first: a removal that is cut short must not leave half a checkpoint that looks
    // whole.
    fs::remove(FolderOf(steps[i]) + "/DONE", ignored);
    fs::remove_all(FolderOf(steps[i]), ignored);
  }
}

Result<void> CheckpointFolder::Read(const ParameterLayout& layout, std::int64_t step,
                                    TrainingState& state) const {
  const std::string folder = FolderOf(step);
  auto text = ReadFile(folder + "/manifest.json", kMaxManifestBytes);
  if (!text) return tl::unexpected(text.error());
  std::string hash;
  auto checked = ReadJson<bool>(
      *text, (folder + "/manifest.json").c_str(), [&](const nlohmann::json& json) -> Result<bool> {
        if (json.at("ranges") != nlohmann::json(RangesOf(layout)))
          return FailAt(folder, "holds another model's parameters");
        json.at("state_xxh3").get_to(hash);
        json.at("step").get_to(state.step);
        json.at("updates").get_to(state.updates);
        const auto identity = json.at("identity").get<std::string>();
        if (identity != state.identity) {
          return FailAt(folder, "was made with \"" + Printable(identity) + "\", this run has \"" +
                                    state.identity +
                                    "\"; name another run folder or the same settings");
        }
        return true;
      });
  if (!checked) return tl::unexpected(checked.error());
  const Arenas arenas = ArenasOf(state);
  auto read = ReadArenas(folder + "/state.bin", arenas);
  if (!read) return read;
  if (HashOf(arenas) != hash)
    return FailAt(folder + "/state.bin", "its content does not fit the hash in manifest.json");
  return {};
}

}  // namespace adaptive_train
