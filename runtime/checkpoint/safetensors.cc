#include "runtime/checkpoint/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/file_io.h"

namespace adaptive_train {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr std::int64_t kLengthBytes = 8;

float FromBf16(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

float FromF16(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 0x1f;
  const int fraction = bits & 0x3ff;
  const float size = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                     : exponent == 31
                         ? (fraction == 0 ? INFINITY : NAN)
                         : std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
  return (bits & 0x8000) != 0 ? -size : size;
}

Result<std::vector<float>> ReadHalves(const RegularFile& file, std::int64_t offset,
                                      std::size_t count, float (*convert)(std::uint16_t)) {
  std::vector<float> values(count);
  std::vector<std::uint16_t> block(std::min<std::size_t>(count, 1 << 19));
  for (std::size_t done = 0; done < count; done += block.size()) {
    block.resize(std::min(block.size(), count - done));
    auto read = file.ReadAt(offset + static_cast<std::int64_t>(2 * done),
                            std::as_writable_bytes(std::span(block)));
    if (!read) return tl::unexpected(read.error());
    std::transform(block.begin(), block.end(), values.begin() + static_cast<std::ptrdiff_t>(done),
                   convert);
  }
  return values;
}

Result<std::vector<float>> ReadFloats(const RegularFile& file, std::int64_t offset,
                                      std::size_t count) {
  std::vector<float> values(count);
  auto read = file.ReadAt(offset, std::as_writable_bytes(std::span(values)));
  if (!read) return tl::unexpected(read.error());
  return values;
}

tl::unexpected<Error> FailErrno(const std::string& path) {
  return Fail(fmt::format("{}: {}", path, std::strerror(errno)), ExitCode::kPreflight);
}

/// A file under a temporary name until Commit; removed if that is never reached.
class PendingFile {
 public:
  explicit PendingFile(std::string path)
      : path_(std::move(path)), temporary_(fmt::format("{}.{}.tmp", path_, ::getpid())) {
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
  }
  ~PendingFile() {
    if (fd_ < 0) return;
    ::close(fd_);
    ::unlink(temporary_.c_str());
  }
  PendingFile(const PendingFile&) = delete;
  PendingFile& operator=(const PendingFile&) = delete;

  Result<void> Write(std::span<const std::byte> bytes) {
    if (fd_ < 0) return FailErrno(path_);
    while (!bytes.empty()) {
      const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return FailErrno(path_);
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
    return {};
  }

  Result<void> Commit() {
    if (::fsync(fd_) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0)
      return FailErrno(path_);
    ::close(fd_);
    fd_ = -1;
    const auto folder = std::filesystem::path(path_).parent_path();
    const int directory =
        ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory >= 0) {
      ::fsync(directory);  // some network file systems cannot; the rename stands all the same
      ::close(directory);
    }
    return {};
  }

 private:
  std::string path_, temporary_;
  int fd_;
};

std::size_t Elements(const TensorSource& tensor) {
  std::size_t count = 1;
  for (const std::int64_t length : tensor.shape) count *= static_cast<std::size_t>(length);
  return count;
}

/// The length and the header, padded so that the data is aligned.
std::string Preamble(std::span<const TensorSource> tensors) {
  nlohmann::ordered_json json{{"__metadata__", {{"format", "pt"}}}};
  std::uint64_t offset = 0;
  for (const TensorSource& tensor : tensors) {
    const std::uint64_t end = offset + Elements(tensor) * sizeof(float);
    json[tensor.name] = {
        {"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string header = json.dump();
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = header.size();
  std::string out(kLengthBytes, '\0');
  std::memcpy(out.data(), &length, kLengthBytes);
  return out + header;
}

}  // namespace

Result<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  auto file = RegularFile::Open(path);
  if (!file) return tl::unexpected(file.error());
  if (file->size() < kLengthBytes) {
    return Fail(fmt::format("{}: {} bytes are no safetensors file", path, file->size()));
  }
  std::uint64_t length = 0;
  auto read = file->ReadAt(0, std::as_writable_bytes(std::span(&length, 1)));
  if (!read) return tl::unexpected(read.error());
  const auto rest = static_cast<std::uint64_t>(file->size() - kLengthBytes);
  if (length > std::min(rest, kMaxSafetensorsHeader)) {
    return Fail(fmt::format("{}: a header of {} bytes; the file has room for {}, the format for {}",
                            path, length, rest, kMaxSafetensorsHeader));
  }
  std::string header(length, '\0');
  read = file->ReadAt(kLengthBytes, std::as_writable_bytes(std::span(header)));
  if (!read) return tl::unexpected(read.error());
  auto entries = ParseSafetensorsHeader(header, rest - length);
  if (!entries) return FailIn(path, entries.error());
  return SafetensorsFile(std::move(*file), kLengthBytes + static_cast<std::int64_t>(length),
                         std::move(*entries));
}

Result<std::vector<float>> SafetensorsFile::Read(const std::string& name,
                                                 const std::vector<std::int64_t>& shape) const {
  const std::string where = fmt::format("{}: tensor {}", path(), Printable(name));
  const auto found = entries_.find(name);
  if (found == entries_.end()) return Fail(where + " is not there");
  const SafetensorsEntry& entry = found->second;
  if (entry.shape != shape) {
    return Fail(fmt::format("{} is [{}], expected [{}]", where, fmt::join(entry.shape, ", "),
                            fmt::join(shape, ", ")));
  }
  const std::int64_t offset = data_offset_ + static_cast<std::int64_t>(entry.begin);
  const auto count = static_cast<std::size_t>(entry.count);
  Result<std::vector<float>> values;
  if (entry.type == "F32") {
    values = ReadFloats(file_, offset, count);
  } else if (entry.type == "BF16") {
    values = ReadHalves(file_, offset, count, FromBf16);
  } else if (entry.type == "F16") {
    values = ReadHalves(file_, offset, count, FromF16);
  } else {
    return Fail(fmt::format("{} is of type {}; allowed are F32, BF16, F16", where, entry.type));
  }
  if (!values) return values;
  if (!std::all_of(values->begin(), values->end(), [](float v) { return std::isfinite(v); })) {
    return Fail(where + " holds a value that is not finite");
  }
  return values;
}

Result<void> WriteSafetensors(const std::string& path, std::span<const TensorSource> tensors) {
  PendingFile file(path);
  auto done = file.Write(std::as_bytes(std::span<const char>(Preamble(tensors))));
  for (std::size_t i = 0; done && i < tensors.size(); ++i) {
    std::vector<float> values(Elements(tensors[i]));
    tensors[i].fill(values);
    done = file.Write(std::as_bytes(std::span<const float>(values)));
  }
  if (!done) return done;
  return file.Commit();
}

}  // namespace adaptive_train
