// The head and its loss, a chunk of rows at a time. Logits are rounded to T, and so are their
// gradients, which take their places.
#include "kernels/head_loss.h"

#include <span>
#include <vector>

#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/grouped_product.h"
#include "kernels/cuda/instances.h"
#include "kernels/cuda/reduce.h"

namespace adaptive_train::kernels::cuda {
namespace {

/// The groups of this rank's entries; one group where nothing is asked for.
struct Groups {
  std::int64_t vocab, first, whole, own, before, all;

  constexpr std::int64_t Begin(std::int64_t group) const {
    if (whole == 0) return group * vocab;
    return GroupBegin(whole, before + group, all) - first;
  }
};

template <class T>
Groups GroupsOf(const HeadLossArguments<T>& x) {
  const VocabularyPart<T>& part = x.part;
  const std::int64_t own = part.groups == 0 ? 1 : part.groups;
  return {x.vocab, part.first,      part.groups == 0 ? 0 : part.whole,
          own,     part.rank * own, part.ranks * own};
}

/// Arrays of one chunk, in scratch memory.
template <class T>
struct Chunk {
  std::int64_t rows, vocab;
  std::int64_t stride;          // from row to row of the logits and their gradients
  bool at_once;                 // whether neighbours in a row may be read at once
  const T* weight;              // [padded vocab, columns]
  std::int64_t padded;          // vocab, or stride where the matrix units need that
  const std::int32_t* targets;  // of its rows; in the whole vocabulary
  T* logits;                    // [rows, stride], without the bias; then their gradients
  float* of_groups;             // [all groups, rows]: logarithms of sums of exponentials
  float* target_logits;         // [rows], behind of_groups; 0 where another rank has it
  float* of_rows;               // [rows]: of all groups
  float* places;                // [places, rows, columns]: of a tree of groups
};

/// What gradients of logits are multiplied by. They are at most 1; of a large vocabulary most are so
/// small that binary16 would round them to few bits.
template <class T>
inline constexpr float kGradientFactor = std::is_same_v<T, Float16> ? 0x1p14F : 1;

constexpr std::int64_t kLine = 64;  // numbers

constexpr std::int64_t InLines(std::int64_t numbers) { return Pieces(numbers, kLine) * kLine; }

/// Logits of a chunk fit into this, and into a part of the GPU's memory, or are of kHeadLossRows.
constexpr std::int64_t kLogitsBytes = std::int64_t{1} << 30, kPartOfMemory = 64;

/// Equal chunks in whole lines, but for the last one; a row has `stride` elements. A vocabulary in groups, or that ranks share, has the same chunks in every cut and on
/// every GPU.
template <class T>
std::int64_t ChunkRows(std::int64_t rows, std::int64_t stride, const VocabularyPart<T>& part,
                       std::int64_t memory) {
  if (part.ranks > 1 || part.groups > 0) return std::min(rows, kHeadLossRows);
  const std::int64_t bytes = std::min(kLogitsBytes, memory / kPartOfMemory);
  const std::int64_t fit = bytes / (stride * std::int64_t{sizeof(T)});
  const std::int64_t chunks = Pieces(rows, std::max(kHeadLossRows, fit));
  return std::min(rows, InLines(Pieces(rows, std::max(chunks, std::int64_t{1}))));
}

/// The matrix units are slow where a vocabulary is not a multiple of this.
constexpr std::int64_t kUnitRows = 8;

/// A copy of the weight with rows of 0 behind the last.
template <class T>
const T* PadWeight(CudaDevice<T>& device, const HeadLossArguments<T>& x, std::int64_t padded,
                   T* copy) {
  const std::int64_t count = x.vocab * x.columns;
  device.CopyWithin(copy, x.weight, static_cast<std::size_t>(count) * sizeof(T));
  device.Clear(copy + count, static_cast<std::size_t>(padded * x.columns - count) * sizeof(T));
  return copy;
}

template <class T>
Chunk<T> ChunkIn(CudaDevice<T>& device, std::int64_t memory, Room& room,
                 const HeadLossArguments<T>& x, const Groups& groups) {
  constexpr std::int64_t kInFloat = sizeof(float) / sizeof(T);
  Chunk<T> chunk{};
  chunk.vocab = chunk.padded = x.vocab;
  chunk.weight = x.weight;
  // In groups, sums must not depend on where a rank's entries begin.
  chunk.at_once = x.part.groups == 0;
  chunk.stride = std::max(chunk.at_once ? InLines(x.vocab) : x.vocab, std::int64_t{1});
  chunk.rows = ChunkRows(x.rows, chunk.stride, x.part, memory);
  const bool pads = kInFloat > 1 && x.vocab % kUnitRows != 0;
  const std::int64_t rows = chunk.rows, logits = InLines(rows * chunk.stride) / kInFloat;
  const std::int64_t weight = pads ? InLines(chunk.stride * x.columns) / kInFloat : 0;
  const std::int64_t of_groups = InLines((groups.all + 1) * rows), of_rows = InLines(rows);
  const std::int64_t places = groups.own > 1 ? TreeDepth(groups.own) + 1 : 0;
  float* at =
      room.For<float>(logits + weight + of_groups + of_rows + places * InLines(rows * x.columns));
  const auto take = [&at](std::int64_t floats) { return (at += floats) - floats; };
  chunk.logits = reinterpret_cast<T*>(take(logits));
  if (pads) chunk.weight = PadWeight(device, x, chunk.stride, reinterpret_cast<T*>(take(weight)));
  if (pads) chunk.padded = chunk.stride;
  chunk.of_groups = take(of_groups);
  chunk.of_rows = take(of_rows);
  chunk.places = at;
  return chunk;
}

/// A sum of exponentials, and the largest exponent so far, which is taken out of it. Nothing here
/// is fused with what is around it: the bits must not depend on that.
struct SoftmaxSum {
  float largest = -INFINITY, sum = 0;

  template <int kCount>
  __device__ void Add(const Neighbours<float, kCount>& logits) {
    float now = largest;
#pragma unroll
    for (const float logit : logits.at) now = fmaxf(now, logit);
    if (now > largest) {
      sum *= largest == -INFINITY ? 0 : expf(largest - now);
      largest = now;
    }
#pragma unroll
    for (const float logit : logits.at)
      sum = __fadd_rn(sum, logit == -INFINITY ? 0 : expf(logit - largest));
  }
};

template <class T>
inline constexpr int kLogitsAtOnce = 16 / sizeof(T);  // bytes of a load

/// A row of logits without their bias, and the block's threads.
template <class T>
struct LogitsRow {
  const T* logits;
  const T* bias;  // or nullptr
  bool at_once;

  template <int kCount>
  __device__ Neighbours<float, kCount> At(std::int64_t v) const {
    const Neighbours<T, kCount> rounded = Load<kCount>(logits + v);
    Neighbours<float, kCount> values;
#pragma unroll
    for (int i = 0; i < kCount; ++i) values.at[i] = Wide(rounded.at[i]);
    if (bias == nullptr) return values;
#pragma unroll
    for (int i = 0; i < kCount; ++i) values.at[i] += Wide(bias[v + i]);
    return values;
  }
  /// body(v, values) for the thread's entries in [begin, end), the first ones last: a row that was
  /// read before is in the cache from its end on. Neighbours are read at once from a begin that is
  /// aligned.
  template <class Body>
  __device__ void Backwards(std::int64_t begin, std::int64_t end, const Body& body) const {
    const std::int64_t groups = at_once ? (end - begin) / kLogitsAtOnce<T> : 0;
    const std::int64_t alone = begin + groups * kLogitsAtOnce<T>;
    for (std::int64_t v = end - 1 - threadIdx.x; v >= alone; v -= blockDim.x) body(v, At<1>(v));
    for (std::int64_t i = groups - 1 - threadIdx.x; i >= 0; i -= blockDim.x) {
      const std::int64_t v = begin + i * kLogitsAtOnce<T>;
      body(v, At<kLogitsAtOnce<T>>(v));
    }
  }
  /// The logarithm of the sum of the exponentials of entries [begin, end). `place` is shared memory
  /// for a value of each warp. The block's threads call it together.
  __device__ float LogSumExp(std::int64_t begin, std::int64_t end, float* place) const {
    SoftmaxSum own;
    Backwards(begin, end, [&](std::int64_t, const auto& values) { own.Add(values); });
    const float largest = OverBlock(own.largest, Larger(), place);
    if (own.largest != -INFINITY) own.sum *= expf(own.largest - largest);
    const float sum = OverBlock(own.sum, Plus(), place);
    return largest == -INFINITY && sum == 0 ? largest : largest + logf(sum);  // NaN stays
  }
  __device__ float LogitOf(std::int64_t target) const { return At<1>(target).at[0]; }
};

template <class T>
__device__ LogitsRow<T> RowOf(const Chunk<T>& chunk, std::int64_t row, const T* bias) {
  return {chunk.logits + row * chunk.stride, bias, chunk.at_once};
}

/// A block has a row's entries of one group: makes the logarithm of their exponentials' sum, and
/// the target's logit if it is there.
template <class T>
__global__ void __launch_bounds__(kThreads)
    GroupSoftmaxKernel(Chunk<T> chunk, Groups groups, const T* bias) {
  __shared__ float place[kThreads / kWarp];
  const std::int64_t row = blockIdx.x, group = blockIdx.y;
  const std::int64_t begin = groups.Begin(group), end = groups.Begin(group + 1);
  const LogitsRow<T> logits = RowOf(chunk, row, bias);
  const float of_group = logits.LogSumExp(begin, end, place);
  if (threadIdx.x != 0) return;
  chunk.of_groups[(groups.before + group) * chunk.rows + row] = of_group;
  const std::int64_t target = chunk.targets[row] - groups.first;
  if (target >= begin && target < end) chunk.target_logits[row] = logits.LogitOf(target);
}

template <class T>
void CombineGroups(const Stream& stream, const Chunk<T>& chunk, const Groups& groups,
                   float* losses) {
  ForElements(stream, chunk.rows, [chunk, groups, losses] __device__(std::int64_t row) {
    const float* const of_groups = chunk.of_groups + row;
    float largest = -INFINITY, sum = 0;
    for (std::int64_t group = 0; group < groups.all; ++group)
      largest = Larger()(largest, of_groups[group * chunk.rows]);
    for (std::int64_t group = 0; group < groups.all; ++group)
      sum += expf(of_groups[group * chunk.rows] - largest);
    const float all = largest + logf(sum);
    chunk.of_rows[row] = all;
    losses[row] = chunk.targets[row] < 0 ? 0 : all - chunk.target_logits[row];
  });
}

/// The other ranks' groups, and the target's logit from the rank that has it.
template <class T>
void ShareGroups(DeviceMemory& memory, const VocabularyPart<T>& part, const Chunk<T>& chunk,
                 const Groups& groups) {
  std::vector<float> values(static_cast<std::size_t>((groups.all + 1) * chunk.rows));
  memory.CopyToHost(values.data(), chunk.of_groups, values.size() * sizeof(float));
  part.sum(values);
  memory.CopyFromHost(chunk.of_groups, values.data(), values.size() * sizeof(float));
}

template <class T>
void ComputeLogits(const Stream& stream, Products& products, const HeadLossArguments<T>& x,
                   const T* input, const Chunk<T>& chunk) {
  if (x.vocab == 0) return;
  if constexpr (std::is_same_v<T, float>) {
    if (x.part.groups > 0)
      return Multiply(stream, OrderedProduct{.rows = chunk.rows,
                                             .columns = x.vocab,
                                             .end = x.columns,
                                             .a = input,
                                             .a_row = x.columns,
                                             .a_inner = 1,
                                             .b = x.weight,
                                             .b_inner = 1,
                                             .b_column = x.columns,
                                             .c = chunk.logits});
  }
  products.Multiply(Product{.rows = chunk.rows,
                            .columns = chunk.padded,
                            .inner = x.columns,
                            .operands = kScalarOf<T>,
                            .a = input,
                            .b = chunk.weight,
                            .transpose_b = true,
                            .result = kScalarOf<T>,
                            .d = chunk.logits,
                            .d_stride = chunk.stride});
}

/// Of a vocabulary in groups, or that ranks share.
template <class T>
void ComputeLosses(CudaDevice<T>& device, const Stream& stream, const HeadLossArguments<T>& x,
                   const Chunk<T>& chunk, const Groups& groups, float* losses) {
  device.Clear(chunk.of_groups,
               static_cast<std::size_t>((groups.all + 1) * chunk.rows) * sizeof(float));
  Launch(stream, dim3(static_cast<unsigned>(chunk.rows), static_cast<unsigned>(groups.own)),
         kThreads, 0, GroupSoftmaxKernel<T>, chunk, groups, x.bias);
  if (x.part.ranks > 1) ShareGroups(device, x.part, chunk, groups);
  CombineGroups(stream, chunk, groups, losses);
}

/// A block makes the gradients of a row's logits, times the factor. What pads a row becomes 0.
template <class T>
__device__ void DifferentiateRow(const Chunk<T>& chunk, std::int64_t row,
                                 const LogitsRow<T>& logits, float of_row, std::int64_t first,
                                 float factor) {
  const bool counts = chunk.targets[row] >= 0;
  const std::int64_t target = chunk.targets[row] - first;
  T* const d_logits = chunk.logits + row * chunk.stride;
  logits.Backwards(
      0, chunk.vocab, [&]<int kCount>(std::int64_t v, const Neighbours<float, kCount>& values) {
        Neighbours<T, kCount> gradients;
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
          const float d = __fsub_rn(expf(values.at[i] - of_row), v + i == target ? 1.0F : 0.0F);
          gradients.at[i] = Narrow<T>(counts ? factor * d : 0);
        }
        Store(gradients, d_logits + v);
      });
  for (std::int64_t v = chunk.vocab + threadIdx.x; v < chunk.stride; v += blockDim.x)
    d_logits[v] = Narrow<T>(0);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    GradientKernel(Chunk<T> chunk, std::int64_t first, const T* bias, float factor) {
  const std::int64_t row = blockIdx.x;
  DifferentiateRow(chunk, row, RowOf(chunk, row, bias), chunk.of_rows[row], first, factor);
}

/// As many threads as a block may have: few rows at a time, which then are in the cache.
constexpr int kRowThreads = 1024;

/// Losses and gradients of rows that have the whole vocabulary.
template <class T>
__global__ void __launch_bounds__(kRowThreads)
    LossAndGradientKernel(Chunk<T> chunk, const T* bias, float factor, float* losses) {
  __shared__ float place[kRowThreads / kWarp];
  const std::int64_t row = blockIdx.x;
  const LogitsRow<T> logits = RowOf(chunk, row, bias);
  const float of_row = logits.LogSumExp(0, chunk.vocab, place);
  if (threadIdx.x == 0) {
    const std::int64_t target = chunk.targets[row];
    losses[row] = target < 0 ? 0 : of_row - logits.LogitOf(target);
  }
  __syncthreads();  // gradients may take the logits' places
  DifferentiateRow(chunk, row, logits, of_row, 0, factor);
}

/// Both gradients, `scale` times what the gradients of logits say.
template <class T>
void MultiplyGradients(Products& products, const HeadLossArguments<T>& x, const T* input,
                       T* d_input, const Chunk<T>& chunk, float scale) {
  products.Multiply(Product{.rows = chunk.rows,
                            .columns = x.columns,
                            .inner = chunk.padded,
                            .operands = kScalarOf<T>,
                            .a = chunk.logits,
                            .a_stride = chunk.stride,
                            .b = chunk.weight,
                            .alpha = scale,
                            .result = kScalarOf<T>,
                            .d = d_input});
  // The few rows that the matrix units are slow with have a product of their own.
  const std::int64_t most = x.vocab / kUnitRows * kUnitRows;
  const auto add = [&](std::int64_t begin, std::int64_t end) {
    if (begin == end) return;
    float* const d_weight = x.d_weight + begin * x.columns;
    products.Multiply(Product{.rows = end - begin,
                              .columns = x.columns,
                              .inner = chunk.rows,
                              .operands = kScalarOf<T>,
                              .a = chunk.logits + begin,
                              .transpose_a = true,
                              .a_stride = chunk.stride,
                              .b = input,
                              .alpha = scale,
                              .c = d_weight,
                              .d = d_weight});
  };
  add(0, most);
  add(most, x.vocab);
}

/// d_input is a tree of the groups' sums; both products have the same bits in every cut.
void MultiplyGroups(const Stream& stream, const HeadLossArguments<float>& x, const float* input,
                    float* d_input, const Chunk<float>& chunk, const Groups& groups) {
  const std::int64_t count = chunk.rows * x.columns;
  const auto at = [&](std::int64_t place) {
    return place == 0 ? d_input : chunk.places + (place - 1) * count;
  };
  AddTree(
      0, groups.own, 0,
      [&](std::int64_t group, std::int64_t place) {
        Multiply(stream, OrderedProduct{.rows = chunk.rows,
                                        .columns = x.columns,
                                        .begin = groups.Begin(group),
                                        .end = groups.Begin(group + 1),
                                        .a = chunk.logits,
                                        .a_row = x.vocab,
                                        .a_inner = 1,
                                        .b = x.weight,
                                        .b_inner = x.columns,
                                        .b_column = 1,
                                        .c = at(place)});
      },
      [&](std::int64_t from, std::int64_t to) { AddPlace(stream, count, at(from), at(to)); });
  Multiply(stream, OrderedProduct{.rows = x.vocab,
                                  .columns = x.columns,
                                  .end = chunk.rows,
                                  .a = chunk.logits,
                                  .a_row = 1,
                                  .a_inner = x.vocab,
                                  .b = input,
                                  .b_inner = x.columns,
                                  .b_column = 1,
                                  .c = x.d_weight,
                                  .accumulate = true});
}

}  // namespace

template <class T>
void CudaDevice<T>::HeadLoss(const HeadLossArguments<T>& x) {
  stream_.Begin("HeadLoss");
  const Groups groups = GroupsOf(x);
  // In float32 the scale is in the logits' gradients, in 16 bits in the products.
  constexpr bool kWide = std::is_same_v<T, float>;
  const auto scale = static_cast<float>(x.gradient_scale);
  const float factor = kWide ? scale : kGradientFactor<T>;
  const float after = kWide ? 1 : scale / kGradientFactor<T>;
  const bool alone = x.part.ranks == 1 && x.part.groups == 0 && x.vocab > 0;
  Chunk<T> chunk = ChunkIn(*this, memory_bytes_, scratch_, x, groups);
  stream_.Begin("HeadLoss");  // not the copy of the weight
  const std::int64_t most = chunk.rows;
  for (std::int64_t first = 0; first < x.rows; first += most) {
    const T* const input = x.input + first * x.columns;
    float* const losses = x.losses + first;
    chunk.rows = std::min(most, x.rows - first);
    chunk.targets = x.targets + first;
    chunk.target_logits = chunk.of_groups + groups.all * chunk.rows;
    ComputeLogits(stream_, products_, x, input, chunk);
    const auto rows = static_cast<unsigned>(chunk.rows);
    if (x.d_input == nullptr || !alone) ComputeLosses(*this, stream_, x, chunk, groups, losses);
    if (x.d_input == nullptr) continue;
    T* const d_input = x.d_input + first * x.columns;
    if (x.vocab == 0) {
      Clear(d_input, static_cast<std::size_t>(chunk.rows * x.columns) * sizeof(T));
      continue;
    }
    if (alone) {
      Launch(stream_, rows, kRowThreads, 0, LossAndGradientKernel<T>, chunk, x.bias, factor,
             losses);
    } else {
      Launch(stream_, rows, kThreads, 0, GradientKernel<T>, chunk, groups.first, x.bias, factor);
    }
    if (x.d_bias != nullptr)
      AddRows(stream_, partial_, chunk.rows, x.vocab, chunk.stride, chunk.logits, after, x.d_bias);
    if constexpr (kWide) {
      if (x.part.groups > 0) {
        MultiplyGroups(stream_, x, input, d_input, chunk, groups);
        continue;
      }
    }
    MultiplyGradients(products_, x, input, d_input, chunk, after);
  }
}

ADAPTIVE_TRAIN_CUDA_OPERATION(HeadLoss, HeadLossArguments)

}  // namespace adaptive_train::kernels::cuda
