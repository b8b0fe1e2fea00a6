#include "runtime/compress/lossless.h"

#include <zstd.h>

#include <memory>

namespace adaptive_train {
namespace {

constexpr int kLevel = 1;

struct Free {
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};

}  // namespace

bool AppendCompressed(kernels::PooledVector<std::byte>& out, std::span<const std::byte> bytes) {
  // Its tables take a megabyte, which is not made anew for each message.
  thread_local const std::unique_ptr<ZSTD_CCtx, Free> context(ZSTD_createCCtx());
  if (!context) return false;
  const std::size_t before = out.size();
  // With one byte less there is room only for what is shorter.
  out.resize(before + bytes.size());
  const std::size_t size =
      bytes.empty() ? 0
                    : ZSTD_compressCCtx(context.get(), out.data() + before, bytes.size() - 1,
                                        bytes.data(), bytes.size(), kLevel);
  const bool shorter = !bytes.empty() && ZSTD_isError(size) == 0;
  out.resize(before + (shorter ? size : 0));
  return shorter;
}

std::optional<kernels::PooledVector<std::byte>> Decompressed(std::span<const std::byte> compressed,
                                                             std::size_t count) {
  thread_local const std::unique_ptr<ZSTD_DCtx, Free> context(ZSTD_createDCtx());
  // A frame that says another size is refused before room is made for it.
  if (!context || ZSTD_getFrameContentSize(compressed.data(), compressed.size()) != count)
    return std::nullopt;
  kernels::PooledVector<std::byte> bytes(count);
  const std::size_t restored =
      ZSTD_decompressDCtx(context.get(), bytes.data(), count, compressed.data(), compressed.size());
  if (ZSTD_isError(restored) != 0 || restored != count) return std::nullopt;
  return bytes;
}

}  // namespace adaptive_train
