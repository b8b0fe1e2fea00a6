#include "launcher/run/run_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <thread>

#include "core/file_io.h"
#include "core/json.h"

namespace adaptive_train {
namespace {

constexpr std::size_t kMaxOwnerBytes = 1 << 16;
constexpr std::size_t kMaxMetricsBytes = std::size_t{4} << 30;

tl::unexpected<Error> FailErrno(const std::string& path, ExitCode code) {
  const int error = errno;
  return Fail(path + ": " + std::strerror(error), code, error);
}

/// A client of a network file system remembers names for some seconds: it may look for a file that
/// another client has removed, where it should make a new one.
constexpr std::chrono::seconds kRemembered{10};

/// Tries again as long as only the file seems to be missing, and not its folder.
int OpenToAppend(const std::string& folder, const std::string& path) {
  const auto give_up = std::chrono::steady_clock::now() + kRemembered;
  for (;;) {
    const int file =
        ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644);
    const int error = errno;
    std::error_code ignored;
    if (file >= 0 || error != ENOENT || !std::filesystem::exists(folder, ignored) ||
        std::chrono::steady_clock::now() > give_up) {
      errno = error;
      return file;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
}

/// Part of a line is removed again.
Result<void> AppendAndClose(int fd, const std::string& text, const std::string& path) {
  const off_t before = ::lseek(fd, 0, SEEK_END);
  const ssize_t n = ::write(fd, text.data(), text.size());
  Result<void> done;
  if (n < 0) done = FailErrno(path, ExitCode::kRankFailure);
  if (n >= 0 && n != static_cast<ssize_t>(text.size())) {
    errno = ::ftruncate(fd, before) == 0 ? ENOSPC : errno;
    done = FailErrno(path, ExitCode::kRankFailure);
  }
  // Network file systems may say only now that there is no room, or no such file any more.
  if (::close(fd) != 0 && done) done = FailErrno(path, ExitCode::kRankFailure);
  return done;
}

}  // namespace

Result<RunFolder> RunFolder::Open(const std::string& path, std::chrono::milliseconds patience,
                                  std::function<void(const std::string&)> on_notice) {
  std::error_code error;
  const std::string absolute = std::filesystem::absolute(path, error).lexically_normal().string();
  if (error) return Fail(path + ": " + error.message(), ExitCode::kPreflight);
  const bool is_new = !std::filesystem::exists(absolute, error);
  auto made = MakeFolder(absolute + "/logs");
  if (!made) return FailIn("run folder", made.error());
  auto lock = FolderLock::Take(
      {absolute, "run folder", "name another with --run-dir", patience, std::move(on_notice)});
  if (!lock) return tl::unexpected(lock.error());
  return RunFolder(absolute, std::move(*lock), is_new);
}

bool RunFolder::MayBelongTo(const std::string& path, const RunOwner& owner) {
  auto text = ReadFile(path + "/job.json", kMaxOwnerBytes);
  if (!text) return true;
  auto same = ReadJson<bool>(*text, "job.json", [&](const nlohmann::json& json) -> Result<bool> {
    const bool number = json.at("cluster") == owner.cluster && json.at("job_id") == owner.job_id;
    return number && (owner.restart_count > 0 || json.at("submit_time") == owner.submit_time);
  });
  return same.value_or(false);
}

Result<void> RunFolder::SetOwner(const RunOwner& owner) const {
  const nlohmann::ordered_json json = {{"format_version", kFormatVersion},
                                       {"cluster", owner.cluster},
                                       {"job_id", owner.job_id},
                                       {"restart_count", owner.restart_count},
                                       {"submit_time", owner.submit_time}};
  return Write("job.json",
               json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

Result<void> RunFolder::Write(const std::string& name, std::string_view text) const {
  return WriteFile(path_ + "/" + name, text);
}

void RunFolder::RemoveIfUnused() const {
  namespace fs = std::filesystem;
  constexpr const char* kOfEveryStart[] = {"job.json", "config.resolved.toml", "cluster.json",
                                           "profile.json", ".lock"};
  std::error_code error;
  if (!made_ || !fs::is_empty(path_ + "/logs", error)) return;
  // The folder of checkpoints may exist only for its lock.
  fs::remove(path_ + "/checkpoints/.lock", error);
  fs::remove(path_ + "/checkpoints", error);
  const auto known = [&](const fs::path& name) {
    return name == "logs" || std::find(std::begin(kOfEveryStart), std::end(kOfEveryStart), name) !=
                                 std::end(kOfEveryStart);
  };
  for (const auto& entry : fs::directory_iterator(path_, error))
    if (!known(entry.path().filename())) return;
  for (const char* name : kOfEveryStart) fs::remove(path_ + "/" + name, error);
  fs::remove(path_ + "/logs", error);
  fs::remove(path_, error);
}

Result<void> RunFolder::AppendMetrics(const std::string& line) {
  const std::string path = path_ + "/metrics.jsonl";
  for (bool again = true;; again = false) {
    const int fd = OpenToAppend(path_, path);
    if (fd < 0 && errno == ENOENT) {
      return Fail("run folder: " + path_ + " was removed while its run went on",
                  ExitCode::kRankFailure);
    }
    auto done =
        fd < 0 ? FailErrno(path, ExitCode::kRankFailure) : AppendAndClose(fd, line + "\n", path);
    // Another client of a network file system has removed the file since it was opened.
    if (done || !again || done.error().system_error != ESTALE) return done;
  }
}

Result<void> RunFolder::CutMetrics(std::int64_t step) {
  const std::string path = path_ + "/metrics.jsonl";
  if (::access(path.c_str(), F_OK) != 0) return {};
  auto text = ReadFile(path, kMaxMetricsBytes);
  if (!text) return tl::unexpected(text.error());
  std::string kept;
  std::stringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    // A line that is not JSON was cut short when a launcher was killed.
    if (json.is_object() && json.contains("step") && json["step"].is_number_integer() &&
        json["step"] <= step)
      kept += line + "\n";
  }
  if (kept == *text) return {};
  return WriteFile(path, kept);
}

}  // namespace adaptive_train
