// Checks an index in one pass over its three columns.
#include "runtime/data/megatron_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <span>

namespace adaptive_train {
namespace {

/// Consecutive numbers in a file, read block by block.
template <class T>
class Column {
 public:
  Column(const RegularFile& file, std::int64_t begin, std::int64_t count)
      : file_(file), begin_(begin), count_(count) {}

  /// The file offset of number `i`.
  std::int64_t PlaceOf(std::int64_t i) const {
    return begin_ + i * static_cast<std::int64_t>(sizeof(T));
  }

  /// Number `i` < count; ascending calls read every block once.
  Result<T> At(std::int64_t i) {
    assert(i >= 0 && i < count_);
    if (i < first_ || i >= first_ + filled_) {
      first_ = i;
      filled_ = std::min(count_ - i, static_cast<std::int64_t>(block_.size()));
      const auto wanted = std::span(block_).first(static_cast<std::size_t>(filled_));
      if (Result<void> read = file_.ReadAt(PlaceOf(i), std::as_writable_bytes(wanted)); !read)
        return tl::unexpected(read.error());
    }
    return block_[static_cast<std::size_t>(i - first_)];
  }

 private:
  const RegularFile& file_;
  std::int64_t begin_, count_;
  std::int64_t first_ = 0, filled_ = 0;
  std::array<T, 4096> block_;
};

struct Header {
  TokenType type;
  std::int64_t sequences, marks;
};

template <class T>
T NumberAt(std::span<const std::byte> bytes, std::size_t place) {
  T value;
  std::memcpy(&value, bytes.data() + place, sizeof value);
  return value;
}

Result<Header> ReadHeader(const RegularFile& index) {
  const auto fail = [&](const std::string& what) {
    return Fail(fmt::format("{}: {}", index.path(), what));
  };
  if (index.size() < kMegatronHeaderBytes) {
    return fail(fmt::format("no Megatron index: it has {} bytes, the header alone {}", index.size(),
                            kMegatronHeaderBytes));
  }
  std::array<std::byte, kMegatronHeaderBytes> bytes;
  if (Result<void> read = index.ReadAt(0, bytes); !read) return tl::unexpected(read.error());
  if (std::memcmp(bytes.data(), kMegatronMagic, sizeof kMegatronMagic) != 0)
    return fail("no Megatron index: it does not begin with MMIDIDX");
  if (const auto version = NumberAt<std::uint64_t>(bytes, 9); version != 1)
    return fail(
        fmt::format("byte 9: version {} of Megatron's index; this program reads 1", version));
  const auto code = NumberAt<std::uint8_t>(bytes, 17);
  const std::optional<TokenType> type = TokenTypeOfMegatronCode(code);
  if (!type) {
    return fail(fmt::format("byte 17: token type {}{}; allowed are 1 to 5 and 8, the integers",
                            code, code == 6 || code == 7 ? " (floating point)" : ""));
  }
  const auto sequences = NumberAt<std::uint64_t>(bytes, 18),
             marks = NumberAt<std::uint64_t>(bytes, 26);
  const auto room = static_cast<std::uint64_t>(index.size() - kMegatronHeaderBytes);
  // In this order no product can overflow.
  if (sequences > room / 12 || marks != (room - 12 * sequences) / 8 ||
      (room - 12 * sequences) % 8 != 0) {
    return fail(
        fmt::format("byte 18: {} sequences and {} document marks do not fit the {} bytes of "
                    "the file, which would be 34 + 12 for each sequence + 8 for each mark",
                    sequences, marks, index.size()));
  }
  return Header{*type, static_cast<std::int64_t>(sequences), static_cast<std::int64_t>(marks)};
}

/// Walks over marks and sequences together, and keeps the starts of documents that have tokens.
class DocumentWalk {
 public:
  DocumentWalk(const RegularFile& index, const Header& header)
      : path_(index.path()),
        sequences_(header.sequences),
        marks_(header.marks),
        column_(index, kMegatronHeaderBytes + 12 * header.sequences, header.marks) {}

  /// Sequence `i` begins at `token`; i = sequences ends the walk.
  Result<void> At(std::int64_t i, std::int64_t token) {
    const bool marked = marks_ > 1;
    if (!marked) Keep(token);
    while (next_ < marks_) {
      const Result<std::int64_t> mark = column_.At(next_);
      if (!mark) return tl::unexpected(mark.error());
      if (*mark < i || *mark > sequences_ || (next_ == 0 && *mark != 0)) {
        return Fail(fmt::format(
            "{}: byte {}: document mark {} is sequence {}; marks begin with 0, never fall and end "
            "with {}, the number of sequences",
            path_, column_.PlaceOf(next_), next_, *mark, sequences_));
      }
      if (*mark > i) break;
      if (marked) Keep(token);
      ++next_;
    }
    return {};
  }

  /// After the last sequence: checks that all marks were used and the last one was the end.
  Result<std::vector<std::int64_t>> Finish(std::int64_t tokens) {
    if (marks_ > 1) {
      const Result<std::int64_t> last = column_.At(marks_ - 1);
      if (!last) return tl::unexpected(last.error());
      if (*last != sequences_) {
        return Fail(
            fmt::format("{}: byte {}: the last document mark is sequence {}; it must be {}, "
                        "the number of sequences",
                        path_, column_.PlaceOf(marks_ - 1), *last, sequences_));
      }
    }
    if (!starts_.empty() && starts_.back() == tokens) starts_.pop_back();
    return std::move(starts_);
  }

 private:
  void Keep(std::int64_t token) {
    if (starts_.empty() || starts_.back() != token) starts_.push_back(token);
  }

  const std::string path_;
  const std::int64_t sequences_, marks_;
  Column<std::int64_t> column_;
  std::int64_t next_ = 0;
  std::vector<std::int64_t> starts_;
};

Result<std::int64_t> TokensOf(const RegularFile& index, Column<std::int32_t>& sizes,
                              Column<std::int64_t>& pointers, std::int64_t i,
                              std::int64_t expected_byte) {
  const Result<std::int32_t> size = sizes.At(i);
  if (!size) return tl::unexpected(size.error());
  if (*size < 0) {
    return Fail(fmt::format("{}: byte {}: sequence {} has {} tokens", index.path(),
                            sizes.PlaceOf(i), i, *size));
  }
  const Result<std::int64_t> pointer = pointers.At(i);
  if (!pointer) return pointer;
  if (*pointer != expected_byte) {
    return Fail(
        fmt::format("{}: byte {}: sequence {} begins at byte {} of the .bin; the sequences "
                    "before it end at byte {}",
                    index.path(), pointers.PlaceOf(i), i, *pointer, expected_byte));
  }
  return *size;
}

}  // namespace

Result<MegatronIndex> ReadMegatronIndex(const RegularFile& index) {
  const Result<Header> header = ReadHeader(index);
  if (!header) return tl::unexpected(header.error());
  MegatronIndex result;
  result.type = header->type;
  const std::int64_t width = FactsOf(header->type).bytes;
  Column<std::int32_t> sizes(index, kMegatronHeaderBytes, header->sequences);
  Column<std::int64_t> pointers(index, kMegatronHeaderBytes + 4 * header->sequences,
                                header->sequences);
  DocumentWalk documents(index, *header);
  for (std::int64_t i = 0; i < header->sequences; ++i) {
    if (Result<void> walked = documents.At(i, result.tokens); !walked)
      return tl::unexpected(walked.error());
    const Result<std::int64_t> size = TokensOf(index, sizes, pointers, i, result.tokens * width);
    if (!size) return tl::unexpected(size.error());
    result.tokens += *size;
    if (result.tokens > kMostTokens) {
      return Fail(fmt::format("{}: byte {}: more than {} tokens", index.path(), sizes.PlaceOf(i),
                              kMostTokens));
    }
  }
  if (Result<void> walked = documents.At(header->sequences, result.tokens); !walked)
    return tl::unexpected(walked.error());
  Result<std::vector<std::int64_t>> starts = documents.Finish(result.tokens);
  if (!starts) return tl::unexpected(starts.error());
  result.document_starts = std::move(*starts);
  return result;
}

namespace {

template <class T>
void Append(std::string& bytes, T value) {
  char raw[sizeof value];
  std::memcpy(raw, &value, sizeof value);
  bytes.append(raw, sizeof value);
}

}  // namespace

std::string FormatMegatronIndex(TokenType type, const std::vector<std::int32_t>& sizes,
                                const std::vector<std::int64_t>& marks) {
  assert(type != TokenType::kUint32 && !marks.empty() && marks.front() == 0 &&
         marks.back() == static_cast<std::int64_t>(sizes.size()));
  std::string bytes(kMegatronMagic, sizeof kMegatronMagic);
  bytes.reserve(kMegatronHeaderBytes + 12 * sizes.size() + 8 * marks.size());
  Append<std::uint64_t>(bytes, 1);
  Append(bytes, static_cast<std::uint8_t>(type));
  Append<std::uint64_t>(bytes, sizes.size());
  Append<std::uint64_t>(bytes, marks.size());
  for (const std::int32_t size : sizes) Append(bytes, size);
  std::int64_t place = 0;
  for (const std::int32_t size : sizes) {
    Append(bytes, place);
    place += size * FactsOf(type).bytes;
  }
  for (const std::int64_t mark : marks) Append(bytes, mark);
  return bytes;
}

}  // namespace adaptive_train
