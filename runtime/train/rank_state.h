// What a rank holds of the model while it trains: its arenas in the device's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "kernels/buffer.h"
#include "kernels/device.h"
#include "runtime/checkpoint/checkpoint_format.h"
#include "runtime/model/parameter_layout.h"
#include "runtime/train/adamw_groups.h"

namespace adaptive_train {

/// How a rank's arenas are shared out over its data group.
struct Sharding {
  bool optimizer = false;  // moments and masters of other owners are not there (ZeRO-1)
  bool gradients = false;  // nor are gradients, once they are with their owners (ZeRO-2)
};

/// Parameters, gradients and moments are float32. With a 16-bit T, products read a copy of the
/// parameters that every update renews. Memory that is not touched is not there: of a sharded arena
/// only the own chunks are. Not thread-safe.
template <class T>
struct RankState {
  /// The device and the layout must outlive this. Throws std::bad_alloc.
  RankState(kernels::Device<T>& computes, const ParameterLayout& arena_layout,
            const Sharding& shared)
      : device(computes),
        layout(arena_layout),
        sharding(shared),
        parameters(computes, Size(), shared.optimizer && !kOwnWeights),
        gradients(computes, Size(), shared.gradients),
        first_moments(computes, Size(), shared.optimizer),
        second_moments(computes, Size(), shared.optimizer),
        rounded(computes, kOwnWeights ? 0 : Size()) {}

  /// The state before the first step, of what this rank owns.
  void Initialize(std::uint64_t seed, const std::vector<ElementRange>& owned) {
    for (const ElementRange& range : owned) {
      InitializeParameters<float>(layout, seed, range.begin, range.end, parameters.span());
      const std::size_t bytes = static_cast<std::size_t>(range.end - range.begin) * sizeof(float);
      device.Clear(first_moments.data() + range.begin, bytes);
      device.Clear(second_moments.data() + range.begin, bytes);
    }
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
  OptimizerArenas<T> OfUpdate() {
    return {parameters.span(), gradients.span(), first_moments.span(), second_moments.span(),
            rounded.span()};
  }
  TrainingArenas OfCheckpoint(std::span<float> residuals) {
    return {parameters.span(), first_moments.span(), second_moments.span(), residuals};
  }

  static constexpr bool kOwnWeights = std::is_same_v<T, float>;
  std::size_t Size() const { return static_cast<std::size_t>(layout.size()); }

  kernels::Device<T>& device;
  const ParameterLayout& layout;
  const Sharding sharding;
  kernels::Buffer<float> parameters, gradients, first_moments, second_moments;
  kernels::Buffer<T> rounded;  // empty where T is float: the parameters themselves
};

}  // namespace adaptive_train
