// What a rank holds of the model while it trains: its arenas in the device's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "kernels/allocation_failure.h"
#include "kernels/buffer.h"
#include "kernels/device.h"
#include "kernels/host_access.h"
#include "runtime/checkpoint/checkpoint_format.h"
#include "runtime/model/parameter_layout.h"
#include "runtime/train/adamw_groups.h"

namespace adaptive_train {

/// How a rank's arenas are shared out over its data group.
struct Sharding {
  bool optimizer = false;  // moments and masters of other owners are not there (ZeRO-1)
  bool gradients = false;  // nor are gradients, once they are with their owners (ZeRO-2)
};

/// Parameters, gradients and moments are float32. Weights and gradients are of the whole layout,
/// moments and float32 masters of what is trained here. With a 16-bit T, products read a copy of the
/// parameters that every update renews. With two versions of the weights, the older ones are those
/// before the last update, and gradients are handed over: a step's are summed while backward makes
/// the next step's. Memory that is not touched is not there: of a sharded arena only the own chunks
/// are. Not thread-safe.
template <class T>
struct RankState {
  /// The device and the layout must outlive this. Throws kernels::AllocationFailure.
  RankState(kernels::Device<T>& computes, const ParameterLayout& arena_layout,
            const Sharding& shared, int weight_versions = 1)
      : device(computes),
        layout(arena_layout),
        trained(arena_layout.WithoutCopy()),
        sharding(shared),
        parameters(Arena<float>("parameters", kOwnWeights ? Size() : TrainedSize(),
                                shared.optimizer && !kOwnWeights)),
        gradients(Arena<float>("gradients", Size(), shared.gradients)),
        handed_over(Arena<float>("gradients of the step before", weight_versions > 1 ? Size() : 0,
                                 shared.gradients)),
        first_moments(Arena<float>("first moments", TrainedSize(), shared.optimizer)),
        second_moments(Arena<float>("second moments", TrainedSize(), shared.optimizer)),
        rounded(Arena<T>("16-bit weights", kOwnWeights ? 0 : Size(), false)),
        older(Arena<T>("older weights", weight_versions > 1 ? Size() : 0, false)) {}

  /// The state before the first step, of what this rank owns.
  void Initialize(std::uint64_t seed, const std::vector<ElementRange>& owned) {
    for (const ElementRange& range : owned) {
      const auto begin = static_cast<std::size_t>(range.begin);
      const auto size = static_cast<std::size_t>(range.size());
      kernels::WriteOnHost(
          device, parameters.span().subspan(begin, size),
          [&](std::size_t first, std::span<float> values) {
            const std::int64_t from = range.begin + static_cast<std::int64_t>(first);
            InitializeParameters(trained, seed, from,
                                 from + static_cast<std::int64_t>(values.size()), values);
          });
      const std::size_t bytes = size * sizeof(float);
      device.Clear(first_moments.data() + range.begin, bytes);
      device.Clear(second_moments.data() + range.begin, bytes);
    }
    ClearGradients();
  }

  /// Before the first micro-batch of a step.
  void ClearGradients() {
    sharding.gradients ? gradients.Release(0, gradients.size()) : gradients.Clear();
  }

  /// What products read.
  std::span<const T> Weights() const {
    if constexpr (kOwnWeights) {
      return parameters.span();
    } else {
      return rounded.span();
    }
  }
  std::span<T> WritableWeights() {
    if constexpr (kOwnWeights) {
      return parameters.span();
    } else {
      return rounded.span();
    }
  }
  bool HasOlderWeights() const { return older.size() > 0; }
  /// Before an update, with all weights there.
  void KeepWeights() { device.CopyWithin(older.data(), Weights().data(), Weights().size_bytes()); }
  /// What backward has made is what is summed from now on.
  void HandOverGradients() {
    device.CopyWithin(handed_over.data(), gradients.data(), gradients.size() * sizeof(float));
  }
  /// What is summed over ranks.
  std::span<float> SummedGradients() {
    return handed_over.size() > 0 ? handed_over.span() : gradients.span();
  }
  // Of the layout `trained`.
  std::span<float> TrainedGradients() { return SummedGradients().first(TrainedSize()); }
  OptimizerArenas<T> OfUpdate() {
    return {parameters.span().first(TrainedSize()), TrainedGradients(), first_moments.span(),
            second_moments.span(), rounded.span().first(kOwnWeights ? 0 : TrainedSize())};
  }
  TrainingArenas OfCheckpoint(std::span<float> residuals) {
    return {&device,
            {parameters.span().first(TrainedSize()), first_moments.span(), second_moments.span(),
             residuals}};
  }

  static constexpr bool kOwnWeights = std::is_same_v<T, float>;
  std::size_t Size() const { return static_cast<std::size_t>(layout.size()); }
  std::size_t TrainedSize() const { return static_cast<std::size_t>(trained.size()); }

  template <class E>
  kernels::Buffer<E> Arena(const char* name, std::size_t size, bool sparse) const {
    return kernels::AllocatedFor(name, [&] { return kernels::Buffer<E>(device, size, sparse); });
  }

  kernels::Device<T>& device;
  const ParameterLayout& layout;
  const ParameterLayout trained;  // all but the copy of a tied matrix, which is last
  const Sharding sharding;
  kernels::Buffer<float> parameters, gradients;
  kernels::Buffer<float> handed_over;  // gradients; empty with one version of the weights
  kernels::Buffer<float> first_moments, second_moments;
  kernels::Buffer<T> rounded;  // empty where T is float: the parameters themselves
  kernels::Buffer<T> older;    // weights; empty with one version
};

}  // namespace adaptive_train
