// The head and its loss, a chunk of rows at a time. Logits are kept in float32. In 16-bit formats
// their gradients go into the products as a sum of two numbers of T: together they have the bits that
// the contract's float32 sums need.
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
  const std::int32_t* targets;  // of its rows; in the whole vocabulary
  float* logits;                // [rows, vocab]; then their gradients
  T *high, *low;                // [rows, vocab]: the parts of the gradients, of 16 bits
  float* of_groups;             // [all groups, rows]: logarithms of sums of exponentials
  float* target_logits;         // [rows], behind of_groups; 0 where another rank has it
  float* of_rows;               // [rows]: of all groups
  float* d_input;               // [rows, columns]: sums that are not rounded yet
};

/// What the parts of gradients are multiplied by. Gradients of logits are at most 1; of a large
/// vocabulary most are so small that binary16 would round them to few bits.
template <class T>
inline constexpr float kPartFactor = std::is_same_v<T, Float16> ? 0x1p14F : 1;

constexpr std::int64_t InLines(std::int64_t floats) { return Pieces(floats, 64) * 64; }

template <class T>
Chunk<T> ChunkIn(Room& room, const HeadLossArguments<T>& x, const Groups& groups) {
  constexpr bool kParts = !std::is_same_v<T, float>;
  const std::int64_t rows = std::min(x.rows, kHeadLossRows);
  const std::int64_t logits = InLines(rows * x.vocab), parts = kParts ? logits / 2 : 0;
  const std::int64_t of_groups = InLines((groups.all + 1) * rows), of_rows = InLines(rows);
  const std::int64_t places = kParts ? 1 : groups.own > 1 ? TreeDepth(groups.own) + 1 : 0;
  float* at = room.For<float>(logits + 2 * parts + of_groups + of_rows +
                              places * InLines(rows * x.columns));
  const auto take = [&at](std::int64_t floats) { return (at += floats) - floats; };
  Chunk<T> chunk{};
  chunk.logits = take(logits);
  chunk.high = reinterpret_cast<T*>(take(parts));
  chunk.low = reinterpret_cast<T*>(take(parts));
  chunk.of_groups = take(of_groups);
  chunk.of_rows = take(of_rows);
  chunk.d_input = at;
  return chunk;
}

/// A block has a row's entries of one group: adds the bias to its logits and makes the logarithm of
/// their exponentials' sum, and the target's logit if it is there.
template <class T>
__global__ void __launch_bounds__(kThreads)
    GroupSoftmaxKernel(Chunk<T> chunk, Groups groups, const T* bias) {
  __shared__ float place[kThreads / kWarp];
  const std::int64_t row = blockIdx.x, group = blockIdx.y;
  const std::int64_t begin = groups.Begin(group), end = groups.Begin(group + 1);
  float* const logits = chunk.logits + row * chunk.vocab;
  float largest = -INFINITY;
  for (std::int64_t v = begin + threadIdx.x; v < end; v += kThreads) {
    const float logit = bias == nullptr ? logits[v] : logits[v] + Wide(bias[v]);
    logits[v] = logit;
    largest = Larger()(largest, logit);
  }
  largest = OverBlock(largest, Larger(), place);
  float sum = 0;
  for (std::int64_t v = begin + threadIdx.x; v < end; v += kThreads)
    sum += expf(logits[v] - largest);
  sum = OverBlock(sum, Plus(), place);
  if (threadIdx.x != 0) return;
  chunk.of_groups[(groups.before + group) * chunk.rows + row] =
      largest == -INFINITY ? largest : largest + logf(sum);
  const std::int64_t target = chunk.targets[row] - groups.first;
  if (target >= begin && target < end) chunk.target_logits[row] = logits[target];
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
void ComputeLosses(CudaDevice<T>& device, const Stream& stream, Products& products,
                   const HeadLossArguments<T>& x, const T* input, const Chunk<T>& chunk,
                   const Groups& groups, float* losses) {
  bool computed = false;
  if constexpr (std::is_same_v<T, float>) {
    if (x.part.groups > 0) {
      Multiply(stream, OrderedProduct{.rows = chunk.rows,
                                      .columns = x.vocab,
                                      .end = x.columns,
                                      .a = input,
                                      .a_row = x.columns,
                                      .a_inner = 1,
                                      .b = x.weight,
                                      .b_inner = 1,
                                      .b_column = x.columns,
                                      .c = chunk.logits});
      computed = true;
    }
  }
  if (!computed && x.vocab > 0)
    products.Multiply(Product{.rows = chunk.rows,
                              .columns = x.vocab,
                              .inner = x.columns,
                              .operands = kScalarOf<T>,
                              .a = input,
                              .b = x.weight,
                              .transpose_b = true,
                              .d = chunk.logits});
  device.Clear(chunk.of_groups,
               static_cast<std::size_t>((groups.all + 1) * chunk.rows) * sizeof(float));
  Launch(stream, dim3(static_cast<unsigned>(chunk.rows), static_cast<unsigned>(groups.own)),
         kThreads, 0, GroupSoftmaxKernel<T>, chunk, groups, x.bias);
  if (x.part.ranks > 1) ShareGroups(device, x.part, chunk, groups);
  CombineGroups(stream, chunk, groups, losses);
}

/// Logits become their gradients: of float32 times the scale, of 16 bits without it and in parts that
/// are multiplied by kPartFactor.
template <class T>
void DifferentiateLogits(const Stream& stream, const Chunk<T>& chunk, std::int64_t first,
                         float scale) {
  ForElements(stream, chunk.rows * chunk.vocab, [chunk, first, scale] __device__(std::int64_t at) {
    const std::int64_t row = at / chunk.vocab, v = at % chunk.vocab;
    const std::int64_t target = chunk.targets[row];
    float d = 0;
    if (target >= 0)
      d = expf(chunk.logits[at] - chunk.of_rows[row]) - (v == target - first ? 1 : 0);
    if constexpr (std::is_same_v<T, float>) {
      chunk.logits[at] = scale * d;
    } else {
      chunk.logits[at] = d;
      const float whole = kPartFactor<T> * d;
      const T high = Narrow<T>(whole);
      chunk.high[at] = high;
      chunk.low[at] = Narrow<T>(whole - Wide(high));
    }
  });
}

/// Both gradients in 16 bits: each product is that of the high parts and that of the low ones.
template <class T>
void MultiplyParts(const Stream& stream, Products& products, const HeadLossArguments<T>& x,
                   const T* input, T* d_input, const Chunk<T>& chunk) {
  const float scale = static_cast<float>(x.gradient_scale) / kPartFactor<T>;
  const T* const parts[] = {chunk.high, chunk.low};
  for (const T* part : parts) {
    products.Multiply(Product{.rows = chunk.rows,
                              .columns = x.columns,
                              .inner = x.vocab,
                              .operands = kScalarOf<T>,
                              .a = part,
                              .b = x.weight,
                              .alpha = scale,
                              .c = part == chunk.low ? chunk.d_input : nullptr,
                              .d = chunk.d_input});
    products.Multiply(Product{.rows = x.vocab,
                              .columns = x.columns,
                              .inner = chunk.rows,
                              .operands = kScalarOf<T>,
                              .a = part,
                              .transpose_a = true,
                              .b = input,
                              .alpha = scale,
                              .c = x.d_weight,
                              .d = x.d_weight});
  }
  ForElements(stream, chunk.rows * x.columns, [chunk, d_input] __device__(std::int64_t i) {
    d_input[i] = Narrow<T>(chunk.d_input[i]);
  });
}

void MultiplyFloats(Products& products, const HeadLossArguments<float>& x, const float* input,
                    float* d_input, const Chunk<float>& chunk) {
  products.Multiply(Product{.rows = chunk.rows,
                            .columns = x.columns,
                            .inner = x.vocab,
                            .a = chunk.logits,
                            .b = x.weight,
                            .d = d_input});
  products.Multiply(Product{.rows = x.vocab,
                            .columns = x.columns,
                            .inner = chunk.rows,
                            .a = chunk.logits,
                            .transpose_a = true,
                            .b = input,
                            .c = x.d_weight,
                            .d = x.d_weight});
}

/// d_input is a tree of the groups' sums; both products have the same bits in every cut.
void MultiplyGroups(const Stream& stream, const HeadLossArguments<float>& x, const float* input,
                    float* d_input, const Chunk<float>& chunk, const Groups& groups) {
  const std::int64_t count = chunk.rows * x.columns;
  const auto at = [&](std::int64_t place) {
    return place == 0 ? d_input : chunk.d_input + (place - 1) * count;
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
  const auto scale = static_cast<float>(x.gradient_scale);
  Chunk<T> chunk = ChunkIn(scratch_, x, groups);
  for (std::int64_t first = 0; first < x.rows; first += kHeadLossRows) {
    const T* const input = x.input + first * x.columns;
    chunk.rows = std::min(kHeadLossRows, x.rows - first);
    chunk.vocab = x.vocab;
    chunk.targets = x.targets + first;
    chunk.target_logits = chunk.of_groups + groups.all * chunk.rows;
    ComputeLosses(*this, stream_, products_, x, input, chunk, groups, x.losses + first);
    if (x.d_input == nullptr) continue;
    T* const d_input = x.d_input + first * x.columns;
    if (x.vocab == 0) {
      Clear(d_input, static_cast<std::size_t>(chunk.rows * x.columns) * sizeof(T));
      continue;
    }
    DifferentiateLogits(stream_, chunk, groups.first, scale);
    if (x.d_bias != nullptr) {
      const float factor = std::is_same_v<T, float> ? 1 : scale;
      AddColumnSums(
          stream_, partial_, chunk.rows, x.vocab,
          [chunk, factor] __device__(std::int64_t row, std::int64_t column) {
            return factor * chunk.logits[row * chunk.vocab + column];
          },
          x.d_bias);
    }
    if constexpr (!std::is_same_v<T, float>) {
      MultiplyParts(stream_, products_, x, input, d_input, chunk);
    } else if (x.part.groups > 0) {
      MultiplyGroups(stream_, x, input, d_input, chunk, groups);
    } else {
      MultiplyFloats(products_, x, input, d_input, chunk);
    }
  }
}

ADAPTIVE_TRAIN_CUDA_OPERATION(HeadLoss, HeadLossArguments)

}  // namespace adaptive_train::kernels::cuda
