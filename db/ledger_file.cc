#include "db/ledger_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/file_io.h"
#include "db/ledger_json.h"

namespace adaptive_train {
namespace {

constexpr std::size_t kMaxLedgerBytes = std::size_t{1} << 30;

tl::unexpected<Error> FailErrno(const std::filesystem::path& path) {
  return Fail(fmt::format("ledger {}: {}", path.string(), std::strerror(errno)), ExitCode::kStore);
}

/// True if the file ends within a line: a launcher was killed while writing.
bool EndsInsideALine(int descriptor) {
  const off_t size = ::lseek(descriptor, 0, SEEK_END);
  char last = '\n';
  return size > 0 && ::pread(descriptor, &last, 1, size - 1) == 1 && last != '\n';
}

}  // namespace

LedgerFile::~LedgerFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<void> LedgerFile::Open(const std::filesystem::path& path) {
  path_ = path;
  return Write();
}

Result<void> LedgerFile::Append(NumberedEntry entry) {
  waiting_.push_back(std::move(entry));
  return path_.empty() ? Result<void>{} : Write();
}

Result<void> LedgerFile::Sync() {
  if (descriptor_ >= 0 && ::fsync(descriptor_) != 0) return FailErrno(path_);
  return {};
}

Result<void> LedgerFile::Write() {
  if (waiting_.empty()) return {};
  if (descriptor_ < 0) {
    descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (descriptor_ < 0) return FailErrno(path_);
  }
  // Retried with each entry, since a full disk may have room later. No entry may precede the run's
  // first line.
  if (!begun_) {
    if (EndsInsideALine(descriptor_)) {
      if (auto ended = WriteLine(""); !ended) return ended;
    }
    if (auto begun = WriteLine(LedgerLine(job_)); !begun) return begun;
    begun_ = true;
  }
  for (const NumberedEntry& entry : std::exchange(waiting_, {})) {
    if (auto done = WriteLine(LedgerLine(job_.uid, entry)); !done) return done;
  }
  return {};
}

Result<void> LedgerFile::WriteLine(const std::string& line) {
  const off_t before = ::lseek(descriptor_, 0, SEEK_END);
  if (before < 0) return FailErrno(path_);
  const std::string text = line + "\n";
  const ssize_t n = ::write(descriptor_, text.data(), text.size());
  if (n == static_cast<ssize_t>(text.size())) return {};
  if (n >= 0) errno = ENOSPC;
  auto failed = FailErrno(path_);
  if (::ftruncate(descriptor_, before) != 0) begun_ = false;  // a new line first, the job again
  return failed;
}

Result<LedgerContent> ReadLedger(const std::filesystem::path& path) {
  auto text = ReadFile(path.string(), kMaxLedgerBytes);
  if (!text) return Fail("ledger " + text.error().message, ExitCode::kStore);
  LedgerContent content;
  const auto leave_out = [&](std::size_t number, const std::string& why) {
    content.notes.push_back(
        fmt::format("ledger {}: line {} is left out: {}", path.string(), number, why));
  };
  std::size_t number = 0;
  for (std::size_t begin = 0; begin < text->size();) {
    const std::size_t end = text->find('\n', begin);
    const std::string_view line = std::string_view(*text).substr(begin, end - begin);
    begin = end == std::string::npos ? text->size() : end + 1;
    ++number;
    if (line.empty()) continue;
    auto read = ReadLedgerLine(line);
    if (!read && end == std::string::npos) {
      leave_out(number, "it is torn; its launcher writes it just now, or was killed");
    } else if (!read) {
      leave_out(number, read.error().message);
    } else if (auto* job = std::get_if<JobRecord>(&read->content)) {
      content.runs.push_back({std::move(*job), {}});
    } else {
      const auto run = std::find_if(content.runs.begin(), content.runs.end(),
                                    [&](const RunLedger& one) { return one.job.uid == read->uid; });
      if (run == content.runs.end()) {
        leave_out(number, "its run's first line is missing");
      } else {
        run->entries.push_back(std::move(std::get<NumberedEntry>(read->content)));
      }
    }
  }
  return content;
}

}  // namespace adaptive_train
