// Names, places and initial values of parameters.
#include "runtime/model/parameter_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tests/unit/runtime_model/small_model.h"

namespace adaptive_train::parameter_layout_test {
namespace {

ModelDims Dims(bool tied = true) {
  return {
      .layers = 4, .heads = 2, .hidden = 16, .sequence = 9, .vocab = 33, .tie_embeddings = tied};
}

std::vector<float> Initial(const ParameterLayout& layout, std::uint64_t seed = 1337) {
  std::vector<float> parameters(static_cast<std::size_t>(layout.size()));
  InitializeParameters(layout, seed, std::span(parameters));
  return parameters;
}

std::span<float> PartOf(std::vector<float>& arena, std::int64_t begin, std::int64_t end) {
  return std::span(arena).subspan(static_cast<std::size_t>(begin),
                                  static_cast<std::size_t>(end - begin));
}

std::span<const float> ValuesOf(const std::vector<float>& arena, const ParameterRange& range) {
  return std::span(arena).subspan(static_cast<std::size_t>(range.offset),
                                  static_cast<std::size_t>(range.count));
}

TEST(ParameterLayout, ARangeOfInitialValuesIsThatOfTheWhole) {
  const ParameterLayout layout(Dims(), StageSlice::Whole(Dims()));
  const std::vector<float> whole = Initial(layout);
  for (const std::int64_t step : {1, 7, 1000}) {
    std::vector<float> pieces(whole.size());
    for (std::int64_t begin = 0; begin < layout.size(); begin += step) {
      const std::int64_t end = std::min(begin + step, layout.size());
      InitializeParameters(layout, 1337, begin, end, PartOf(pieces, begin, end));
    }
    EXPECT_EQ(whole, pieces) << step;
  }
}

TEST(ParameterLayout, RangesLieEndToEndInTheOrderOfTheModel) {
  const ParameterLayout layout(Dims(false), StageSlice::Whole(Dims()));
  std::int64_t offset = 0;
  for (const ParameterRange& range : layout.ranges()) {
    EXPECT_EQ(offset, range.offset) << range.name;
    EXPECT_EQ(offset, range.global_offset) << range.name;
    EXPECT_EQ(range.shape.size() == 2, range.decay) << range.name;
    offset += range.count;
  }
  EXPECT_EQ(offset, layout.size());
  EXPECT_EQ("wte.weight", layout.ranges()[0].name);
  EXPECT_EQ("wpe.weight", layout.ranges()[1].name);
  EXPECT_EQ("h.0.ln_1.weight", layout.ranges()[2].name);
  EXPECT_EQ("lm_head.weight", layout.ranges().back().name);
  EXPECT_EQ((std::vector<std::int64_t>{16, 48}), layout.Find("h.3.attn.c_attn.weight")->shape);
  EXPECT_EQ(nullptr, layout.Find("h.4.ln_1.weight"));
  EXPECT_EQ(nullptr, ParameterLayout(Dims(), StageSlice::Whole(Dims())).Find("lm_head.weight"));
}

TEST(ParameterLayout, StagesCoverTheModelOnceExceptForTheTiedCopy) {
  for (const bool tied : {true, false}) {
    const ParameterLayout whole(Dims(tied), StageSlice::Whole(Dims()));
    std::map<std::string, std::int64_t> seen;
    for (const StageSlice& slice : {StageSlice{0, 1, true, false}, StageSlice{1, 3, false, false},
                                    StageSlice{3, 4, false, true}}) {
      const ParameterLayout part(Dims(tied), slice);
      for (const ParameterRange& range : part.ranges()) {
        ++seen[range.name];
        EXPECT_EQ(whole.Find(range.name)->global_offset, range.global_offset) << range.name;
        EXPECT_EQ(whole.Find(range.name)->count, range.count) << range.name;
      }
    }
    EXPECT_EQ(whole.ranges().size(), seen.size());
    for (const auto& [name, times] : seen)
      EXPECT_EQ(tied && name == "wte.weight" ? 2 : 1, times) << name;
  }
}

TEST(StageSlice, LayersOfAPlanAreEmbeddingBlocksAndHead) {
  const ModelDims dims = Dims();
  const auto slice = [&](std::int64_t first, std::int64_t end) {
    const StageSlice of = StageSlice::OfLayers(dims, first, end);
    return std::tuple(of.first_block, of.last_block, of.has_embedding, of.has_head);
  };
  const std::int64_t all = dims.layers + 2;
  EXPECT_EQ(slice(0, all), std::tuple(0, dims.layers, true, true));
  EXPECT_EQ(slice(0, 1), std::tuple(0, 0, true, false)) << "the embedding alone";
  EXPECT_EQ(slice(1, 3), std::tuple(0, 2, false, false));
  EXPECT_EQ(slice(3, all), std::tuple(2, dims.layers, false, true));
  EXPECT_EQ(slice(all - 1, all), std::tuple(dims.layers, dims.layers, false, true)) << "the head";
}

TEST(ParameterLayout, LeavesOutTheTiedCopyWhereItIsAskedTo) {
  const ParameterLayout last(Dims(), StageSlice{3, 4, false, true});
  ASSERT_NE(last.Copy(), nullptr);
  EXPECT_EQ(last.Copy()->name, "wte.weight");
  const ParameterLayout without = last.WithoutCopy();
  EXPECT_EQ(without.size(), last.Copy()->offset) << "the copy is last";
  EXPECT_EQ(without.Copy(), nullptr);
  EXPECT_EQ(without.Find("wte.weight"), nullptr);
  const ParameterLayout whole(Dims(), StageSlice::Whole(Dims()));
  EXPECT_EQ(whole.Copy(), nullptr);
  EXPECT_EQ(whole.WithoutCopy().size(), whole.size());
}

TEST(ParameterLayout, DecayRunsCoverWhatTheyAreAskedForAndAreAsLongAsCanBe) {
  const ParameterLayout layout(Dims(), StageSlice::Whole(Dims()));
  for (const auto& [begin, end] :
       {std::pair<std::int64_t, std::int64_t>{0, layout.size()}, {5, 900}, {700, 701}, {8, 8}}) {
    std::int64_t at = begin;
    const std::vector<DecayRun> runs = layout.DecayRuns(begin, end);
    for (std::size_t i = 0; i < runs.size(); ++i) {
      EXPECT_EQ(at, runs[i].begin);
      EXPECT_LT(runs[i].begin, runs[i].end);
      EXPECT_TRUE(i == 0 || runs[i - 1].decay != runs[i].decay);
      at = runs[i].end;
    }
    EXPECT_EQ(end, at);
  }
}

TEST(InitialParameters, HaveTheSpreadOfGpt2) {
  const ModelDims dims{.layers = 8, .heads = 2, .hidden = 64, .sequence = 64, .vocab = 100};
  const ParameterLayout layout(dims, StageSlice::Whole(dims));
  const std::vector<float> arena = Initial(layout);
  for (const ParameterRange& range : layout.ranges()) {
    const std::span<const float> values = ValuesOf(arena, range);
    if (range.initial != InitialValue::kNormal) {
      for (const float value : values)
        EXPECT_EQ(range.initial == InitialValue::kOnes ? 1 : 0, value) << range.name;
      continue;
    }
    double squares = 0;
    for (const float value : values) squares += static_cast<double>(value) * value;
    const bool residual = range.name.ends_with("c_proj.weight");
    EXPECT_NEAR(residual ? 0.005 : 0.02, std::sqrt(squares / static_cast<double>(range.count)),
                residual ? 3e-4 : 1e-3)
        << range.name;
  }
}

TEST(InitialParameters, AreTheSameInEveryLayout) {
  const ParameterLayout whole(Dims(), StageSlice::Whole(Dims()));
  const std::vector<float> expected = Initial(whole);
  for (const StageSlice& slice : {StageSlice{0, 2, true, false}, StageSlice{2, 3, false, false},
                                  StageSlice{3, 4, false, true}}) {
    const ParameterLayout part(Dims(), slice);
    const std::vector<float> arena = Initial(part);
    for (const ParameterRange& range : part.ranges()) {
      const std::span<const float> ours = ValuesOf(arena, range),
                                   theirs = ValuesOf(expected, *whole.Find(range.name));
      EXPECT_TRUE(std::equal(ours.begin(), ours.end(), theirs.begin(), theirs.end())) << range.name;
    }
  }
}

ModelDims TensorDims(ModelKind kind, bool tied) {
  return {.layers = 2,
          .heads = 8,
          .hidden = 16,
          .sequence = 5,
          .vocab = 33,
          .tie_embeddings = tied,
          .kind = kind,
          .kv_heads = kind == ModelKind::kLlama ? 4 : 0,
          .ffn = 12};
}

/// Calls body(dims, layout) for the stages of 1 to 4 tensor ranks of all models.
template <class Body>
void ForTensorRanks(std::int64_t ranks, const Body& body) {
  for (const ModelKind kind : {ModelKind::kGpt2, ModelKind::kLlama, ModelKind::kBert}) {
    for (const bool tied : {true, false}) {
      const ModelDims dims = TensorDims(kind, tied);
      for (const StageSlice& slice : {StageSlice{0, 1, true, false}, StageSlice{1, 2, false, true}})
        for (std::int64_t rank = 0; rank < ranks; ++rank)
          body(dims, ParameterLayout(dims, std::span(&slice, 1), {rank, ranks}));
    }
  }
}

TEST(TensorRanks, BeginWithTheInitialValuesOfTheWholeModel) {
  for (const std::int64_t ranks : {1, 2, 4}) {
    ForTensorRanks(ranks, [](const ModelDims& dims, const ParameterLayout& part) {
      const ParameterLayout whole(dims, StageSlice::Whole(dims));
      const std::vector<float> expected = Initial(whole), arena = Initial(part);
      for (const ParameterRange& range : part.ranges()) {
        const std::span<const float> values = ValuesOf(arena, range);
        for (std::int64_t i = 0; i < range.count; ++i)
          ASSERT_EQ(values[static_cast<std::size_t>(i)],
                    expected[static_cast<std::size_t>(GlobalPlace(range, i))])
              << range.name << " " << i;
      }
      // In pieces that begin and end anywhere.
      std::vector<float> pieces(arena.size());
      for (std::int64_t begin = 0; begin < part.size(); begin += 7) {
        const std::int64_t end = std::min(begin + 7, part.size());
        InitializeParameters(part, 1337, begin, end, PartOf(pieces, begin, end));
      }
      EXPECT_EQ(arena, pieces);
    });
  }
}

TEST(TensorRanks, OwnEveryElementOfTheModelOnce) {
  for (const std::int64_t ranks : {1, 2, 4}) {
    const ModelDims dims = TensorDims(ModelKind::kLlama, false);
    const StageSlice slice = StageSlice::Whole(dims);
    const ParameterLayout whole(dims, slice);
    std::vector<int> owned(static_cast<std::size_t>(whole.size()));
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      const ParameterLayout part(dims, std::span(&slice, 1), {rank, ranks});
      const ElementRanges own = part.OwnElements(0, part.size());
      for (const ParameterRange& range : part.ranges()) {
        for (std::int64_t i = 0; i < range.count; ++i) {
          const bool mine = std::any_of(own.begin(), own.end(), [&](const ElementRange& some) {
            return some.begin <= range.offset + i && range.offset + i < some.end;
          });
          if (mine) ++owned[static_cast<std::size_t>(GlobalPlace(range, i))];
        }
      }
      const ElementRanges some = part.OwnElements(100, 300);
      for (const ElementRange& range : some)
        EXPECT_TRUE(100 <= range.begin && range.begin < range.end && range.end <= 300);
    }
    EXPECT_EQ(owned, std::vector<int>(owned.size(), 1)) << ranks;
  }
}

TEST(TensorRanks, HaveTheDimensionsOfANarrowerModel) {
  const ModelDims dims = TensorDims(ModelKind::kLlama, true);
  const StageSlice slice = StageSlice::Whole(dims);
  for (const std::int64_t rank : {0, 1, 2, 3}) {
    const TensorPart part{rank, 4};
    const ModelDims of_part = PartOf(dims, part);
    EXPECT_EQ(of_part.HeadSize(), dims.HeadSize());
    EXPECT_EQ(of_part.vocab, rank == 3 ? 9 : 8);
    const ParameterLayout layout(dims, std::span(&slice, 1), part);
    EXPECT_EQ(layout.Find("wte.weight")->shape, (std::vector<std::int64_t>{of_part.vocab, 16}));
    EXPECT_EQ(layout.Find("wte.weight")->rows.begin, 8 * rank);
    EXPECT_EQ(layout.Find("h.0.attn.c_attn.weight")->shape,
              (std::vector<std::int64_t>{16, of_part.QkvColumns()}));
    EXPECT_EQ(layout.Find("h.0.attn.c_attn.weight")->columns,
              (ElementRanges{{4 * rank, 4 * rank + 4},
                             {16 + 2 * rank, 18 + 2 * rank},
                             {24 + 2 * rank, 26 + 2 * rank}}));
    EXPECT_EQ(layout.Find("h.1.mlp.c_fc.weight")->columns,
              (ElementRanges{{3 * rank, 3 * rank + 3}, {12 + 3 * rank, 15 + 3 * rank}}));
    EXPECT_EQ(layout.Find("h.1.mlp.c_proj.weight")->rows, (ElementRange{3 * rank, 3 * rank + 3}));
    EXPECT_EQ(layout.Find("h.1.ln_2.weight")->split, TensorSplit::kNone);
  }
}

TEST(InitialParameters, DependOnTheSeed) {
  const ParameterLayout layout(Dims(), StageSlice::Whole(Dims()));
  EXPECT_EQ(Initial(layout, 1), Initial(layout, 1));
  EXPECT_NE(Initial(layout, 1), Initial(layout, 2));
}

}  // namespace
}  // namespace adaptive_train::parameter_layout_test
