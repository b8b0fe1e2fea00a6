// Ranks that share each layer compute what one rank computes: losses, gradients, activations.
#include <gtest/gtest.h>

#include <array>
#include <barrier>
#include <cmath>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cpu/cpu_device.h"
#include "kernels/inner_groups.h"
#include "kernels/reference/reference_device.h"
#include "tests/unit/runtime_model/small_model.h"

namespace adaptive_train::tensor_ranks_test {
namespace {

using kernels::BFloat16;

/// Ranks as threads. Each adds all ranks' values: in their order, or as a balanced tree in which
/// every sum is rounded.
template <class T>
class ThreadedRanks {
 public:
  ThreadedRanks(std::int64_t ranks, bool as_tree)
      : as_tree_(as_tree),
        values_(static_cast<std::size_t>(ranks)),
        heads_(static_cast<std::size_t>(ranks)),
        wholes_(static_cast<std::size_t>(ranks)),
        rows_(static_cast<std::size_t>(ranks)),
        all_(ranks) {}

  TensorRanks<T> At(std::int64_t rank) {
    return {{rank, std::ssize(values_)},
            [this, rank](std::span<T> values) { Sum<T>(rank, values); },
            [this, rank](std::span<kernels::Accumulator<T>> values) {
              Sum<kernels::Accumulator<T>>(rank, values);
            },
            nullptr,
            [this, rank](std::span<std::byte> whole, std::size_t row) { Gather(rank, whole, row); },
            [this, rank](const SharedHead<T>& head) { GatherHead(rank, head); },
            [this, rank](const SharedHead<T>& head) { SumHead(rank, head); },
            [this, rank](const SharedRows<T>& rows) { SumRows(rank, rows); },
            [this, rank](std::span<kernels::Accumulator<T>> values) {
              Sum<kernels::Accumulator<T>>(rank, values);
            }};
  }
  /// Runs body(rank) on every rank.
  template <class Body>
  void Run(const Body& body) {
    std::vector<std::thread> threads;
    for (std::int64_t rank = 0; rank < std::ssize(values_); ++rank)
      threads.emplace_back([&body, rank] { body(rank); });
    for (std::thread& thread : threads) thread.join();
  }

 private:
  template <class E>
  void Sum(std::int64_t rank, std::span<E> values) {
    auto& own = values_[static_cast<std::size_t>(rank)];
    own.clear();
    for (const E value : values) own.push_back(kernels::ToFloat(value));
    all_.arrive_and_wait();
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = as_tree_ ? TreeSum<E>(i) : OrderedSum<E>(i);
    all_.arrive_and_wait();
  }
  template <class E>
  E OrderedSum(std::size_t i) const {
    double sum = 0;
    for (const auto& of_rank : values_) sum += of_rank[i];
    return kernels::Rounded<E>(static_cast<kernels::Accumulator<E>>(sum));
  }
  template <class E>
  E TreeSum(std::size_t i) const {
    std::array<kernels::Accumulator<E>, 4> places{};
    const auto at = [&](std::int64_t place) -> kernels::Accumulator<E>& {
      return places[static_cast<std::size_t>(place)];
    };
    kernels::AddTree(
        0, std::ssize(values_), 0,
        [&](std::int64_t rank, std::int64_t place) {
          at(place) =
              static_cast<kernels::Accumulator<E>>(values_[static_cast<std::size_t>(rank)][i]);
        },
        [&](std::int64_t from, std::int64_t to) { at(to) += at(from); });
    return kernels::Rounded<E>(places[0]);
  }

  void Gather(std::int64_t rank, std::span<std::byte> whole, std::size_t row) {
    wholes_[static_cast<std::size_t>(rank)] = whole.data();
    all_.arrive_and_wait();
    for (std::int64_t other = 0; other < std::ssize(values_); ++other) {
      const TensorPart part{other, std::ssize(values_)};
      const ElementRange rows = part.Of(static_cast<std::int64_t>(whole.size() / row));
      const std::size_t begin = static_cast<std::size_t>(rows.begin) * row;
      if (other != rank)
        std::copy_n(wholes_[static_cast<std::size_t>(other)] + begin,
                    static_cast<std::size_t>(rows.size()) * row, whole.data() + begin);
    }
    all_.arrive_and_wait();
  }
  void SumRows(std::int64_t rank, const SharedRows<T>& rows) {
    rows_[static_cast<std::size_t>(rank)] = rows.whole;
    all_.arrive_and_wait();
    const ElementRange own = TensorPart{rank, std::ssize(values_)}.Of(rows.rows);
    const std::int64_t begin = own.begin * rows.columns;
    for (std::int64_t i = 0; i < own.size() * rows.columns; ++i) {
      double sum = rows.residual == nullptr ? 0 : kernels::ToFloat(rows.residual[i]);
      for (const T* whole : rows_) sum += kernels::ToFloat(whole[begin + i]);
      rows.own[i] = kernels::Rounded<T>(static_cast<kernels::Accumulator<T>>(sum));
    }
    all_.arrive_and_wait();
  }
  /// Calls body(row, of) for keys and values of each row when all ranks' heads can be read.
  template <class Body>
  void WithHeads(std::int64_t rank, const SharedHead<T>& head, const Body& body) {
    heads_[static_cast<std::size_t>(rank)] = head;
    all_.arrive_and_wait();
    for (std::int64_t row = 0; row < head.rows; ++row)
      for (const std::int64_t of : {0, 1}) body(row, of);
    all_.arrive_and_wait();
  }
  const SharedHead<T>& Sharing(std::int64_t rank, std::int64_t part) const {
    const std::int64_t first = rank - rank % heads_[0].ranks;
    return heads_[static_cast<std::size_t>(first + part)];
  }
  void GatherHead(std::int64_t rank, const SharedHead<T>& head) {
    WithHeads(rank, head, [&](std::int64_t row, std::int64_t of) {
      std::copy_n(head.PartRow(row), head.queries, head.WholeRow(row));
      for (std::int64_t part = 0; part < head.ranks; ++part)
        std::copy_n(Sharing(rank, part).InPart(row, of), head.PartSize(),
                    head.InWhole(row, of) + part * head.PartSize());
    });
  }
  void SumHead(std::int64_t rank, const SharedHead<T>& head) {
    const std::int64_t own = rank % head.ranks * head.PartSize();
    WithHeads(rank, head, [&](std::int64_t row, std::int64_t of) {
      std::copy_n(head.WholeRow(row), head.queries, head.PartRow(row));
      for (std::int64_t i = 0; i < head.PartSize(); ++i) {
        double sum = 0;
        for (std::int64_t part = 0; part < head.ranks; ++part)
          sum += kernels::ToFloat(Sharing(rank, part).InWhole(row, of)[own + i]);
        head.InPart(row, of)[i] = kernels::Rounded<T>(static_cast<kernels::Accumulator<T>>(sum));
      }
    });
  }

  const bool as_tree_;
  std::vector<std::vector<double>> values_;  // [ranks]
  std::vector<SharedHead<T>> heads_;         // [ranks]
  std::vector<std::byte*> wholes_;           // [ranks]
  std::vector<const T*> rows_;               // [ranks]
  std::barrier<> all_;
};

/// What a pass over a model computes; gradients of the whole model, in its order.
struct Computed {
  double loss = 0, evaluated = 0;
  std::vector<double> gradients;
};

/// A model that 4 tensor ranks can share, with a vocabulary that no number of them divides.
ModelDims SharedDims(ModelKind kind, bool tied) {
  ModelDims dims = SmallDims(kind, tied);
  dims.heads = 8;
  dims.hidden = 16;
  dims.kv_heads = kind == ModelKind::kLlama ? 4 : 0;
  dims.ffn = 12;
  dims.vocab = 13;
  if (kind == ModelKind::kLlama) dims.attention_bias = AttentionBias::kAll;
  return dims;
}

/// Of two stages on each of the tensor ranks. Elements that several ranks have must be the same
/// bits on all of them, as must the loss and what crosses the boundary.
template <class T, class MakeDevice>
Computed Compute(const ModelDims& dims, std::int64_t ranks, StageOptions options,
                 const MakeDevice& make_device, bool halves = false) {
  options.row_ranks = options.reproducible ? 1 : ranks;
  const TokenBatch batch = RandomBatch(dims, options.micro_batch);
  const StageSlice slices[] = {{0, 1, true, false}, {1, dims.layers, false, true}};
  ThreadedRanks<T> threads(ranks, options.reproducible);
  std::vector<Computed> of_rank(static_cast<std::size_t>(ranks));
  std::vector<double> boundary;
  const ParameterLayout whole(dims, StageSlice::Whole(dims));
  Computed all;
  all.gradients.resize(static_cast<std::size_t>(whole.size()));
  std::vector<double> copy(static_cast<std::size_t>(whole.Find("wte.weight")->count));
  std::vector<bool> seen(all.gradients.size());
  std::mutex merging;
  threads.Run([&](std::int64_t rank) {
    const auto device = make_device();
    SmallStage<T> first(dims, slices[0], options, *device, threads.At(rank)),
        last(dims, slices[1], options, *device, threads.At(rank));
    const auto forward = [&](double dropout) {
      const Pass pass{batch.samples, {.step = 3, .first_sample = 5}, dropout};
      const T* hidden = first.stage.ForwardTokens(first.state, pass, batch.tokens);
      last.stage.ForwardActivations(last.state, pass, hidden);
    };
    Computed& own = of_rank[static_cast<std::size_t>(rank)];
    forward(0);
    own.evaluated = last.stage.HeadLoss(last.state, batch.targets);
    forward(options.dropout);
    own.loss = last.stage.HeadLoss(last.state, batch.targets, 0.5);
    if (halves) {
      first.stage.BackwardInput(first.state, last.stage.BackwardInput(last.state, nullptr));
      for (SmallStage<T>* stage : {&first, &last}) stage->stage.BackwardWeight(stage->state);
    } else {
      first.stage.Backward(first.state, last.stage.Backward(last.state, nullptr));
    }
    const std::lock_guard lock(merging);
    for (const SmallStage<T>* stage : {&first, &last}) {
      for (const ParameterRange& range : stage->layout.ranges()) {
        const bool is_copy = stage->layout.Copy() == &range;
        for (std::int64_t i = 0; i < range.count; ++i) {
          const auto place = static_cast<std::size_t>(GlobalPlace(range, i));
          const auto gradient = static_cast<double>(
              stage->gradients.span()[static_cast<std::size_t>(range.offset + i)]);
          if (is_copy) {
            copy[place] = gradient;
          } else {
            if (seen[place]) {
              EXPECT_EQ(all.gradients[place], gradient) << range.name;
            }
            seen[place] = true;
            all.gradients[place] = gradient;
          }
        }
      }
    }
  });
  for (std::size_t i = 0; dims.tie_embeddings && i < copy.size(); ++i) all.gradients[i] += copy[i];
  EXPECT_EQ(seen, std::vector<bool>(seen.size(), true));
  for (const Computed& own : of_rank) {
    EXPECT_EQ(own.loss, of_rank[0].loss);
    EXPECT_EQ(own.evaluated, of_rank[0].evaluated);
  }
  all.loss = of_rank[0].loss;
  all.evaluated = of_rank[0].evaluated;
  return all;
}

/// Each parameter's gradient within `tolerance` of its norm, and at least one of them not zero.
void ExpectAgree(const ModelDims& dims, const Computed& expected, const Computed& actual,
                 double tolerance) {
  EXPECT_NEAR(expected.loss, actual.loss, tolerance * expected.loss);
  EXPECT_NEAR(expected.evaluated, actual.evaluated, tolerance * expected.evaluated);
  const ParameterLayout whole(dims, StageSlice::Whole(dims));
  for (const ParameterRange& range : whole.ranges()) {
    double difference = 0, norm = 0;
    for (std::int64_t i = range.offset; i < range.offset + range.count; ++i) {
      const auto at = static_cast<std::size_t>(i);
      difference += std::pow(expected.gradients[at] - actual.gradients[at], 2);
      norm += std::pow(expected.gradients[at], 2);
    }
    EXPECT_GT(norm, 0) << range.name;
    EXPECT_LE(std::sqrt(difference), tolerance * std::sqrt(norm)) << range.name;
  }
}

template <class T, class Device, class... Arguments>
void ExpectRanksAgree(double tolerance, Arguments... arguments) {
  const auto make_device = [=] { return std::make_unique<Device>(arguments...); };
  for (const ModelKind kind : {ModelKind::kGpt2, ModelKind::kLlama, ModelKind::kBert}) {
    for (const bool tied : {true, false}) {
      for (const Recompute recompute :
           {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
        const ModelDims dims = SharedDims(kind, tied);
        const StageOptions options{.micro_batch = 3,
                                   .recompute = recompute,
                                   .dropout = recompute == Recompute::kSelective ? 0.0 : 0.2,
                                   .seed = 4};
        const Computed one = Compute<T>(dims, 1, options, make_device);
        for (const std::int64_t ranks : {2, 4}) {
          SCOPED_TRACE(NameOf(kind) + (tied ? " tied " : " ") + std::to_string(ranks));
          ExpectAgree(dims, one, Compute<T>(dims, ranks, options, make_device), tolerance);
        }
      }
    }
  }
}

/// Llama of 8 heads with so few of keys and values that several ranks have parts of one.
ModelDims GroupedDims(std::int64_t kv_heads) {
  ModelDims dims = SharedDims(ModelKind::kLlama, true);
  dims.hidden = 64;
  dims.kv_heads = kv_heads;
  dims.ffn = 24;
  return dims;
}

template <class T, class Device, class... Arguments>
void ExpectHeadsShared(double tolerance, Arguments... arguments) {
  const auto make_device = [=] { return std::make_unique<Device>(arguments...); };
  for (const std::int64_t kv_heads : {2, 1}) {
    for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
      const ModelDims dims = GroupedDims(kv_heads);
      const StageOptions options{
          .micro_batch = 3, .recompute = recompute, .dropout = 0.2, .seed = 4};
      const Computed one = Compute<T>(dims, 1, options, make_device);
      for (const std::int64_t ranks : {2, 4, 8}) {
        const bool halves = recompute == Recompute::kNone && ranks != 4;
        SCOPED_TRACE(testing::Message() << ranks << " ranks, kv_heads " << kv_heads);
        ExpectAgree(dims, one, Compute<T>(dims, ranks, options, make_device, halves), tolerance);
      }
    }
  }
}

TEST(TensorRanks, ShareHeadsOfKeysAndValuesIfThereAreTooFew) {
  ExpectHeadsShared<double, kernels::reference::ReferenceDevice<double>>(1e-12);
  ExpectHeadsShared<float, kernels::cpu::CpuDevice<float>>(1e-5, 1);
  ExpectHeadsShared<kernels::Float16, kernels::cpu::CpuDevice<kernels::Float16>>(0.03, 1);
}

TEST(TensorRanks, ComputeTheLossAndTheGradientsOfOneRank) {
  ExpectRanksAgree<double, kernels::reference::ReferenceDevice<double>>(1e-12);
}

TEST(TensorRanks, ComputeThemOnTheProcessorInEveryPrecision) {
  ExpectRanksAgree<float, kernels::cpu::CpuDevice<float>>(1e-5, 1);
  ExpectRanksAgree<kernels::BFloat16, kernels::cpu::CpuDevice<kernels::BFloat16>>(0.1, 1);
  ExpectRanksAgree<kernels::Float16, kernels::cpu::CpuDevice<kernels::Float16>>(0.01, 1);
}

/// What 1, 2, 4 and, if they can share the model, 8 ranks compute: losses and gradients bit by bit.
template <class T, class MakeDevice>
void ExpectSameBits(const ModelDims& dims, StageOptions options, const MakeDevice& make_device) {
  options.reproducible = true;
  const Computed one = Compute<T>(dims, 1, options, make_device);
  for (const std::int64_t ranks : {2, 4, 8}) {
    if (!dims.CanBeSharedBy(ranks) || ranks > dims.KvHeads()) continue;
    SCOPED_TRACE(testing::Message() << NameOf(dims.kind) << " on " << ranks << " ranks");
    const Computed several = Compute<T>(dims, ranks, options, make_device);
    EXPECT_EQ(one.loss, several.loss);
    EXPECT_EQ(one.evaluated, several.evaluated);
    const ParameterLayout whole(dims, StageSlice::Whole(dims));
    for (const ParameterRange& range : whole.ranges()) {
      const auto of = [&](const Computed& computed) {
        const auto begin = computed.gradients.begin() + range.offset;
        return std::vector<double>(begin, begin + range.count);
      };
      EXPECT_EQ(of(one), of(several)) << range.name;
    }
  }
}

TEST(TensorRanks, HaveTheBitsOfOneRankIfTheyAreToBeReproducible) {
  for (const ModelKind kind : {ModelKind::kGpt2, ModelKind::kLlama, ModelKind::kBert}) {
    for (const bool tied : {true, false}) {
      for (const Recompute recompute :
           {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
        const StageOptions options{.micro_batch = 3,
                                   .recompute = recompute,
                                   .dropout = recompute == Recompute::kSelective ? 0.0 : 0.2,
                                   .seed = 4};
        const ModelDims dims = SharedDims(kind, tied);
        ExpectSameBits<float>(dims, options,
                              [] { return std::make_unique<kernels::cpu::CpuDevice<float>>(2); });
        ExpectSameBits<double>(dims, options, [] {
          return std::make_unique<kernels::reference::ReferenceDevice<double>>();
        });
      }
    }
  }
}

/// A model that 8 ranks can share, with groups of odd lengths and several tiles of the vocabulary in
/// each.
ModelDims WiderDims(ModelKind kind) {
  ModelDims dims = SharedDims(kind, true);
  dims.layers = 2;
  dims.hidden = 48;
  dims.kv_heads = 0;
  dims.ffn = 72;
  dims.vocab = 3301;
  return dims;
}

TEST(TensorRanks, HaveTheBitsOfOneRankInAWiderModel) {
  for (const ModelKind kind : {ModelKind::kGpt2, ModelKind::kLlama, ModelKind::kBert}) {
    ExpectSameBits<float>(WiderDims(kind), {.micro_batch = 5},
                          [] { return std::make_unique<kernels::cpu::CpuDevice<float>>(1); });
  }
}

// Otherwise the tests above would show nothing.
TEST(TensorRanks, HaveOtherBitsIfTheyNeedNotBeReproducible) {
  const auto make_device = [] { return std::make_unique<kernels::cpu::CpuDevice<float>>(1); };
  for (const ModelKind kind : {ModelKind::kGpt2, ModelKind::kLlama, ModelKind::kBert}) {
    const Computed one = Compute<float>(WiderDims(kind), 1, {.micro_batch = 5}, make_device),
                   two = Compute<float>(WiderDims(kind), 2, {.micro_batch = 5}, make_device);
    EXPECT_NE(one.gradients, two.gradients);
  }
}

TEST(TensorRanks, KeepOfABlockWhatTheModelShapeSays) {
  for (const ModelKind kind : {ModelKind::kGpt2, ModelKind::kLlama, ModelKind::kBert}) {
    for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
      const ModelDims dims = SharedDims(kind, true);
      const LayerShape block = ModelShape::Of(dims, {Precision::kBf16, recompute}).layers[1];
      const std::int64_t whole = block.whole_activation_bytes_per_sample;
      kernels::cpu::CpuDevice<kernels::BFloat16> device(1);
      for (const std::int64_t ranks : {1, 2, 4}) {
        StageOptions options{.micro_batch = 4, .recompute = recompute};
        const ModelDims part = PartOf(dims, {0, ranks});
        SCOPED_TRACE(testing::Message()
                     << NameOf(kind) << " " << static_cast<int>(recompute) << " " << ranks);
        EXPECT_EQ(4 * (whole + (block.activation_bytes_per_sample - whole) / ranks),
                  static_cast<std::int64_t>(BlockState<BFloat16>(part, options, device).bytes()));
        options.row_ranks = ranks;
        const std::int64_t of_each = whole - block.row_bytes_per_sample;
        EXPECT_EQ(4 * of_each + 4 * (block.activation_bytes_per_sample - of_each) / ranks,
                  static_cast<std::int64_t>(BlockState<BFloat16>(part, options, device).bytes()));
      }
    }
  }
}

TEST(TensorRanks, KeepAWholeHeadOfKeysAndValuesIfTheyShareIt) {
  for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
    const ModelDims dims = GroupedDims(2);
    const LayerShape block = ModelShape::Of(dims, {Precision::kBf16, recompute}).layers[1];
    kernels::cpu::CpuDevice<BFloat16> device(1);
    for (const std::int64_t ranks : {2, 4, 8}) {
      const ModelDims part = PartOf(dims, {0, ranks});
      const StageOptions options{.micro_batch = 8, .recompute = recompute, .row_ranks = ranks};
      const std::int64_t more = block.kv_head_bytes_per_sample * (ranks - 2) / ranks;
      EXPECT_EQ(8 * (block.activation_bytes_per_sample / ranks + more),
                static_cast<std::int64_t>(BlockState<BFloat16>(part, options, device).bytes()));
    }
  }
}

TEST(TensorRanks, WorkInTheMemoryThatTheModelShapeSays) {
  for (const ModelKind kind : {ModelKind::kGpt2, ModelKind::kLlama, ModelKind::kBert}) {
    for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
      for (const std::int64_t ranks : {1, 2, 4, 8}) {
        const bool shares_heads = kind == ModelKind::kLlama;
        if (ranks == 8 && !shares_heads) continue;
        const ModelDims dims = shares_heads ? GroupedDims(2) : SharedDims(kind, true);
        const ModelDims part = PartOf(dims, {0, ranks});
        for (const std::int64_t row_ranks : {std::int64_t{1}, ranks}) {
          SCOPED_TRACE(testing::Message() << NameOf(kind) << " " << static_cast<int>(recompute)
                                          << " " << ranks << " " << row_ranks);
          const StageOptions options{
              .micro_batch = 8, .recompute = recompute, .dropout = 0.1, .row_ranks = row_ranks};
          const TrainingFormat format{Precision::kBf16, recompute, true, row_ranks};
          kernels::cpu::CpuDevice<BFloat16> device(1);
          const BlockWorkspace<BFloat16> workspace(part, options, device);
          EXPECT_EQ(
              8 * ModelShape::Of(part, format).workspace_bytes_per_sample,
              static_cast<std::int64_t>(workspace.bytes() - workspace.norm_gradients.bytes()));
        }
      }
    }
  }
}

TEST(TensorRanks, HaveTheParametersThatTheModelShapeSays) {
  for (const ModelKind kind : {ModelKind::kGpt2, ModelKind::kLlama, ModelKind::kBert}) {
    for (const bool tied : {false, true}) {
      const ModelDims dims = SharedDims(kind, tied);
      const ModelShape shape = ModelShape::Of(dims);
      const StageSlice slice = StageSlice::Whole(dims);
      for (const std::int64_t ranks : {1, 2, 4}) {
        double all = 0;
        for (std::int64_t rank = 0; rank < ranks; ++rank)
          all += static_cast<double>(ParameterLayout(dims, {&slice, 1}, {rank, ranks}).size());
        double expected = 0;
        for (const LayerShape& layer : shape.layers)
          expected += static_cast<double>(layer.parameters) * layer.PartOfParameters(ranks);
        EXPECT_NEAR(expected, all / static_cast<double>(ranks), 1e-6)
            << NameOf(kind) << " " << tied << " " << ranks;
      }
    }
  }
}

}  // namespace
}  // namespace adaptive_train::tensor_ranks_test
