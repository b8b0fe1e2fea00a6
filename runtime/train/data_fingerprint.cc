#include "runtime/train/data_fingerprint.h"

#include <xxhash.h>

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace adaptive_train {
namespace {

/// Windows that are hashed, the first and the last of the text among them.
constexpr std::int64_t kWindows = 64;

}  // namespace

Result<std::string> FingerprintOf(const TokenDataset& data, std::int64_t sequence) {
  const std::int64_t last = data.samples() - 1;
  const std::int64_t windows = std::min(kWindows, last + 1);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(sequence)), next(tokens.size());
  std::uint64_t hash = 0;
  for (std::int64_t i = 0; i < windows; ++i) {
    auto read = data.Window(windows == 1 ? 0 : last / (windows - 1) * i, tokens, next);
    if (i + 1 == windows) read = data.Window(last, tokens, next);
    if (!read) return tl::unexpected(read.error());
    hash = XXH3_64bits_withSeed(tokens.data(), tokens.size() * sizeof(tokens[0]), hash);
  }
  return fmt::format("{} tokens in {} samples, hash {:016x}", data.tokens(), data.samples(), hash);
}

}  // namespace adaptive_train
