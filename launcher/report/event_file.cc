#include "launcher/report/event_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <utility>

#include "core/file_io.h"

namespace adaptive_train {
namespace {

constexpr std::string_view kNamePrefix = "events.out.tfevents.";
constexpr std::string_view kFileVersion = "brain.Event:2";
constexpr std::uint64_t kSessionStart = 1;

enum class Wire : std::uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

constexpr std::array<std::uint32_t, 256> CrcTable() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0u);
    table[byte] = crc;
  }
  return table;
}

template <class Unsigned>
void PutFixed(std::string& out, Unsigned value) {
  for (std::size_t i = 0; i < sizeof value; ++i)
    out += static_cast<char>(static_cast<unsigned char>(value >> (8 * i)));
}

void PutVarint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(0x80 | (value & 0x7f));
  out += static_cast<char>(value);
}

void PutKey(std::string& out, std::uint64_t field, Wire wire) {
  PutVarint(out, field << 3 | static_cast<std::uint64_t>(wire));
}

void PutBytes(std::string& out, std::uint64_t field, std::string_view bytes) {
  PutKey(out, field, Wire::kBytes);
  PutVarint(out, bytes.size());
  out += bytes;
}

/// An Event without its content.
std::string EventHead(std::int64_t step, double wall_time) {
  std::string event;
  PutKey(event, 1, Wire::kFixed64);
  PutFixed(event, std::bit_cast<std::uint64_t>(wall_time));
  PutKey(event, 2, Wire::kVarint);
  PutVarint(event, static_cast<std::uint64_t>(step));
  return event;
}

std::uint32_t MaskedCrc(std::string_view bytes) {
  return std::rotr(Crc32c(bytes), 15) + 0xa282ead8u;
}

std::string Record(const std::string& event) {
  std::string record;
  PutFixed(record, static_cast<std::uint64_t>(event.size()));
  PutFixed(record, MaskedCrc(record));
  record += event;
  PutFixed(record, MaskedCrc(event));
  return record;
}

/// A time in seconds that sorts after every event file of the folder.
Result<std::int64_t> NextTime(const std::string& folder, double wall_time) {
  auto time = static_cast<std::int64_t>(wall_time);
  std::error_code error;
  for (auto it = std::filesystem::directory_iterator(folder, error);
       !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with(kNamePrefix)) continue;
    std::int64_t other = 0;
    const char* from = name.data() + kNamePrefix.size();
    const auto parsed = std::from_chars(from, name.data() + name.size(), other);
    // A file name from far in the future must not overflow the sum.
    if (parsed.ec == std::errc() && other < std::int64_t{1} << 40) time = std::max(time, other + 1);
  }
  if (error) return Fail(folder + ": " + error.message(), ExitCode::kRankFailure);
  return time;
}

std::string HostName() {
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0) return "unknown";
  std::string host = name;
  std::replace(host.begin(), host.end(), '/', '_');
  return host;
}

}  // namespace

std::uint32_t Crc32c(std::string_view bytes) {
  static constexpr auto kTable = CrcTable();
  std::uint32_t crc = ~0u;
  for (const char c : bytes)
    crc = (crc >> 8) ^ kTable[(crc ^ static_cast<unsigned char>(c)) & 0xff];
  return ~crc;
}

Result<EventFile> EventFile::Create(const std::string& folder, std::int64_t first_step,
                                    double wall_time) {
  auto made = MakeFolder(folder);
  if (!made) return Fail(made.error().message, ExitCode::kRankFailure);
  auto time = NextTime(folder, wall_time);
  if (!time) return tl::unexpected(time.error());
  const std::string path =
      fmt::format("{}/{}{:010}.{}.{}", folder, kNamePrefix, *time, HostName(), ::getpid());
  const int fd =
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd < 0) return Fail(path + ": " + std::strerror(errno), ExitCode::kRankFailure);
  EventFile file(path, fd);
  std::string version = EventHead(0, wall_time);
  PutBytes(version, 3, kFileVersion);
  std::string session;
  PutKey(session, 1, Wire::kVarint);
  PutVarint(session, kSessionStart);
  std::string start = EventHead(first_step, wall_time);
  PutBytes(start, 7, session);
  auto written = file.Append(Record(version) + Record(start));
  if (!written) return tl::unexpected(written.error());
  return file;
}

EventFile::EventFile(EventFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

EventFile::~EventFile() {
  if (fd_ >= 0) ::close(fd_);
}

Result<void> EventFile::Add(std::int64_t step, double wall_time, std::span<const Scalar> scalars) {
  std::string summary;
  for (const Scalar& scalar : scalars) {
    std::string value;
    PutBytes(value, 1, scalar.tag);
    PutKey(value, 2, Wire::kFixed32);
    PutFixed(value, std::bit_cast<std::uint32_t>(static_cast<float>(scalar.value)));
    PutBytes(summary, 1, value);
  }
  std::string event = EventHead(step, wall_time);
  PutBytes(event, 5, summary);
  return Append(Record(event));
}

Result<void> EventFile::Append(const std::string& record) {
  const off_t before = ::lseek(fd_, 0, SEEK_END);
  const ssize_t n = ::write(fd_, record.data(), record.size());
  if (n == static_cast<ssize_t>(record.size())) return {};
  const int error = n < 0 ? errno : ENOSPC;
  auto failed = Fail(path_ + ": " + std::strerror(error), ExitCode::kRankFailure, error);
  if (n > 0 && ::ftruncate(fd_, before) != 0)
    return Fail(path_ + ": cutting back half an event: " + std::strerror(errno),
                ExitCode::kRankFailure);
  return failed;
}

}  // namespace adaptive_train
