// A file in shared memory that holds one kept part of a state, and says whether it is whole.
//
// It begins with kKeptMark, which is there only while what follows is whole: the words of
// kept_shard.h, padded to `header_bytes` of the file, then the bytes of the shard.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "runtime/buddy/kept_shard.h"

namespace adaptive_train {

/// Bytes of the mark, and of what it is written in: a cache line.
inline constexpr std::size_t kKeptMarkBytes = 64;
/// Of the words at least, besides those that are known when the file is made: numbers become longer.
inline constexpr std::size_t kKeptSpareBytes = std::size_t{64} << 10;

/// Owns the mapping, not the file. Movable. One thread.
class KeptSlot {
 public:
  /// Makes the file (mode 0600, over one that is there) with all of its pages, so that writing it
  /// cannot fail later. Fails where there is not the memory; nothing is left then. Blocks.
  static Result<KeptSlot> Make(const std::string& path, std::size_t header_bytes,
                               std::size_t bytes);
  ~KeptSlot();
  KeptSlot(KeptSlot&& other) noexcept;
  KeptSlot& operator=(KeptSlot&& other) noexcept;

  const std::string& path() const { return path_; }
  /// From now on nothing in it counts.
  void Begin();
  /// The shard's bytes.
  std::span<std::byte> content() const { return all().subspan(header_bytes_); }
  /// What a copy of it is made of: all but the mark.
  std::span<std::byte> message() const { return all().subspan(kKeptMarkBytes); }
  /// False where there is no room for them.
  [[nodiscard]] bool SetText(std::string_view text);
  /// Words and bytes are whole.
  void Complete();

 private:
  KeptSlot(std::string path, std::size_t header_bytes, std::span<std::byte> all)
      : path_(std::move(path)), header_bytes_(header_bytes), memory_(all) {}
  std::span<std::byte> all() const { return memory_; }

  std::string path_;
  std::size_t header_bytes_ = 0;
  std::span<std::byte> memory_;
};

/// The header's size for words of `text_bytes`: whole pages.
std::size_t KeptHeaderBytes(std::size_t text_bytes);

/// A kept part that is read. Owns the mapping. Movable; const members from any thread.
class KeptFile {
 public:
  /// Fails where it is not a file of this kind, or not whole. Its words are checked by their hash,
  /// its content is not. Blocks.
  static Result<KeptFile> Open(const std::string& path);
  ~KeptFile();
  KeptFile(KeptFile&& other) noexcept;
  KeptFile& operator=(KeptFile&& other) noexcept;

  /// See ParseKeptShard.
  std::string_view text() const;
  /// The shard's bytes. They may be torn.
  std::span<const std::byte> content() const { return memory_.subspan(header_bytes_); }
  /// Block `block` of the shard's bytes; at most kCheckpointBlockBytes. It may be torn.
  std::span<const std::byte> Block(std::size_t block) const;

 private:
  explicit KeptFile(std::span<const std::byte> all) : memory_(all) {}

  std::span<const std::byte> memory_;
  std::size_t header_bytes_ = 0;
};

/// The parts in a folder that are whole, of attempts before this one; what else is there does not
/// count. Blocks.
std::vector<KeptEntry> WholeParts(const std::string& folder, std::int64_t attempt);

/// Removes the kept parts of a folder whose names say that they are to go. Blocks.
void RemoveKept(const std::string& folder, const std::function<bool(const KeptEntry&)>& goes);

}  // namespace adaptive_train
