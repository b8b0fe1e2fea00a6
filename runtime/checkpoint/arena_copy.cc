#include "runtime/checkpoint/arena_copy.h"

#include <algorithm>
#include <cassert>
#include <system_error>
#include <thread>

#include "runtime/checkpoint/checkpoint_thread.h"

namespace adaptive_train {
namespace {

/// Less than this is not worth a thread.
constexpr std::size_t kBytesPerThread = std::size_t{4} << 20;

}  // namespace

ArenaCopy::ArenaCopy(const OwnedRanges& owned) {
  for (std::size_t arena = 0; arena < kTrainingArenas; ++arena) {
    if (arena == kResiduals) before_residuals_ = bytes_;
    for (const ElementRange& range : owned[arena]) {
      const std::size_t bytes = static_cast<std::size_t>(range.end - range.begin) * sizeof(float);
      stretches_.push_back(
          {arena, static_cast<std::size_t>(range.begin) * sizeof(float), bytes_, bytes});
      bytes_ += bytes;
    }
  }
}

/// Copies bytes [begin, end) of what is owned, in which several stretches may lie.
void ArenaCopy::CopyPart(const ConstTrainingArenas& arenas, std::byte* to, std::size_t begin,
                         std::size_t end) const {
  auto stretch = std::partition_point(stretches_.begin(), stretches_.end(),
                                      [&](const Stretch& s) { return s.to + s.bytes <= begin; });
  for (; stretch != stretches_.end() && stretch->to < end; ++stretch) {
    const auto arena = std::as_bytes(arenas[stretch->arena]);
    assert(stretch->from + stretch->bytes <= arena.size());
    const std::size_t first = std::max(begin, stretch->to);
    const std::size_t last = std::min(end, stretch->to + stretch->bytes);
    const auto source = arena.subspan(stretch->from + (first - stretch->to), last - first);
    arenas.memory->CopyToHost(to + first, source.data(), source.size());
  }
}

void ArenaCopy::Copy(const ConstTrainingArenas& arenas, std::byte* to, std::size_t bytes,
                     int threads) const {
  if (bytes == 0) return;
  if (!arenas.memory->OnHost()) threads = 1;
  const std::size_t parts =
      std::min(static_cast<std::size_t>(std::max(threads, 1)), bytes / kBytesPerThread + 1);
  const auto cut = [&](std::size_t part) { return bytes / parts * part; };
  const auto end_of = [&](std::size_t part) { return part + 1 == parts ? bytes : cut(part + 1); };
  const auto copy = [&](std::size_t part) { CopyPart(arenas, to, cut(part), end_of(part)); };
  const SignalsLeftToOthers signals;
  std::vector<std::thread> others;
  for (std::size_t part = 1; part < parts; ++part) {
    try {
      others.emplace_back(copy, part);
    } catch (const std::system_error&) {  // no more threads: the caller copies it
      copy(part);
    }
  }
  copy(0);
  for (std::thread& other : others) other.join();
}

}  // namespace adaptive_train
