// A rank that holds its model as several chunks trains as one that holds it in one piece, whatever
// order its schedule has.
#include "runtime/train/stage_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "core/schedule/compute_order.h"
#include "core/schedule/passes.h"
#include "kernels/cpu/cpu_device.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/groups.h"
#include "runtime/data/token_dataset.h"
#include "runtime/fatal_error.h"
#include "runtime/train/step_update.h"
#include "tests/fakes/guarded_device.h"

namespace adaptive_train::stage_runner_test {
namespace {

using Row = std::vector<Action>;

/// 9 samples in micro-batches of 2, so that the last one is smaller.
constexpr std::int64_t kSamples = 9, kMicroBatch = 2;
constexpr int kMicroBatches = 5, kSteps = 2;

void AddBackward(int micro_batch, int chunks, Row& schedule) {
  for (int chunk = chunks; chunk-- > 0;)
    schedule.push_back({chunk, ActionKind::kBackward, micro_batch});
}

/// Each micro-batch forward and backward before the next one.
Row OneAfterAnother(int chunks) {
  Row schedule;
  for (int i = 0; i < kMicroBatches; ++i) {
    for (int chunk = 0; chunk < chunks; ++chunk)
      schedule.push_back({chunk, ActionKind::kForward, i});
    AddBackward(i, chunks, schedule);
  }
  return schedule;
}

/// Chunks as the stages of a pipeline: each runs ahead of the next by one micro-batch, and the last
/// one goes backward directly after forward.
Row AsStages(int chunks) {
  Row schedule;
  for (int wave = 0; wave < kMicroBatches + chunks - 1; ++wave) {
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const int i = wave - chunk;
      if (i < 0 || i >= kMicroBatches) continue;
      schedule.push_back({chunk, ActionKind::kForward, i});
      if (chunk + 1 == chunks) AddBackward(i, chunks, schedule);
    }
  }
  return schedule;
}

/// All chunks run ahead, as on the first rank of a pipeline of ranks: forward through all of them,
/// then in turn backward of one micro-batch and forward of another.
Row Ahead(int chunks, int in_flight) {
  Row schedule;
  const auto stages =
      ComputeOrder(ScheduleKind::kOneForwardOneBackward, {in_flight, 1, kMicroBatches});
  for (const Action& action : stages->ranks.front()) {
    if (action.kind == ActionKind::kBackward) {
      AddBackward(action.micro_batch, chunks, schedule);
    } else {
      for (int chunk = 0; chunk < chunks; ++chunk)
        schedule.push_back({chunk, ActionKind::kForward, action.micro_batch});
    }
  }
  return schedule;
}

/// One rank's row with all that StageRunner wants.
Schedule Whole(int chunks, const Row& row) {
  return WithPasses({.stages = chunks, .micro_batches = kMicroBatches, .ranks = {row}},
                    {.reduce = true});
}

std::vector<StageSlice> Cut(const ModelDims& dims, int chunks) {
  std::vector<StageSlice> slices;
  for (int chunk = 0; chunk < chunks; ++chunk)
    slices.push_back({dims.layers * chunk / chunks, dims.layers * (chunk + 1) / chunks, chunk == 0,
                      chunk + 1 == chunks});
  return slices;
}

/// A one-rank run of some steps.
template <class T>
class Training {
 public:
  Training(const Config& config, const Plan& plan, const Datasets& data,
           const std::vector<StageSlice>& chunks, const Schedule& schedule, bool guarded)
      : device_(guarded ? static_cast<kernels::Device<T>&>(guarded_) : cpu_),
        layout_(DimsOf(config.model), chunks),
        groups_(*communicator_, plan),
        state_(device_, layout_, {}),
        units_(plan.orders.AnyLayout() ? std::make_unique<UnitGradients<T>>(
                                             plan, plan.ranks[0], config.model.tie_embeddings,
                                             HasHalves(schedule.ranks[0]), state_)
                                       : nullptr),
        loader_(DimsOf(config.model), data, 1, config.train.global_batch),
        profiler_(layout_, DimsOf(config.model)),
        tied_(config.model.tie_embeddings, groups_, state_, measure_, units_.get()),
        exchange_(config, plan, plan.ranks[0], groups_, state_, tied_, profiler_, measure_,
                  units_.get()),
        update_(config, plan, plan.ranks[0], groups_, state_, exchange_.Reducer(), tied_, profiler_,
                measure_),
        runner_({DimsOf(config.model),
                 {.micro_batch = kMicroBatch, .dropout = config.train.dropout, .seed = 1},
                 chunks,
                 schedule},
                plan.ranks[0], groups_.pipeline, state_, loader_, profiler_, measure_, {},
                units_ ? units_->EmbeddingPart() : std::span<float>()) {
    state_.Initialize(1, update_.optimizer().Owned());
    update_.MakeWeights();
    validation_.push_back(ValidationLoss());
    for (std::int64_t step = 1; step <= kSteps; ++step) Step(step, config);
    validation_.push_back(ValidationLoss());
  }

  const std::vector<double>& Losses() const { return losses_; }
  const std::vector<double>& ValidationLosses() const { return validation_; }
  /// Of all steps, one after the other.
  const std::vector<float>& Gradients() const { return gradients_; }
  std::size_t activation_bytes() const { return runner_.activation_bytes(); }

 private:
  void Step(std::int64_t step, const Config& config) {
    RankMetrics metrics;
    metrics.step = step;
    exchange_.Begin(step, update_.LossScale());
    const auto targets =
        static_cast<double>(config.train.global_batch * loader_.targets_per_sample());
    losses_.push_back(runner_.Run(step, 1 / targets, exchange_));
    exchange_.Finish();
    gradients_.resize(gradients_.size() + state_.gradients.size());
    state_.gradients.CopyToHost(std::span(gradients_).last(state_.gradients.size()));
    update_.Make(update_.Squares(false), metrics);
    exchange_.EndStep(metrics.skipped, false);
  }
  double ValidationLoss() {
    const std::int64_t windows[] = {0, 1};
    return runner_.Loss(loader_.Validation(windows));
  }

  std::unique_ptr<Communicator> communicator_ = Communicator::Open(0, 1).value();
  kernels::cpu::CpuDevice<T> cpu_{1};
  kernels::GuardedDevice<T> guarded_{cpu_};
  kernels::Device<T>& device_;
  const ParameterLayout layout_;
  Groups groups_;
  RankState<T> state_;
  std::unique_ptr<UnitGradients<T>> units_;
  SampleLoader loader_;
  LayerProfiler profiler_;
  StepMeasure measure_{*communicator_};
  TiedEmbedding<T> tied_;
  StepExchange<T> exchange_;
  StepUpdate<T> update_;
  StageRunner<T> runner_;
  std::vector<double> losses_, validation_;
  std::vector<float> gradients_;
};

/// A small model of one kind, a text, and a plan of one rank.
class Setting {
 public:
  Setting(const char* kind, bool tied, double dropout,
          Reproducible reproducible = Reproducible::kOff) {
    std::string pattern = (std::filesystem::temp_directory_path() / "stages.XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("cannot make a folder");
    folder_ = pattern;
    config_.model.kind = kind;
    config_.model.layers = 4;
    config_.model.heads = 2;
    config_.model.hidden = 16;
    config_.model.sequence = 8;
    config_.model.tie_embeddings = tied;
    plan_.orders.reproducible = config_.train.reproducible = reproducible;
    config_.train.global_batch = plan_.orders.AnyLayout() ? kMicroBatches * kMicroBatch : kSamples;
    config_.train.dropout = dropout;
    RankPlan rank;
    rank.samples = plan_.global_batch = config_.train.global_batch;
    rank.micro_batch = kMicroBatch;
    plan_.ranks.push_back(rank);
    plan_.stages.emplace_back().chunks = {{0, static_cast<int>(config_.model.layers + 2)}};
    data_.emplace(Open());
  }
  ~Setting() { std::filesystem::remove_all(folder_); }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

  template <class T>
  Training<T> TrainedIn(int chunks, const Row& row) const {
    return TrainedBy<T>(chunks, Whole(chunks, row));
  }
  template <class T>
  Training<T> TrainedBy(int chunks, const Schedule& schedule, bool guarded = false) const {
    return Training<T>(config_, plan_, *data_, Cut(DimsOf(config_.model), chunks), schedule,
                       guarded);
  }

 private:
  Datasets Open() const {
    const std::string path = folder_ + "/text";
    std::ofstream text(path, std::ios::binary);
    for (int i = 0; i < 4000; ++i) text << static_cast<char>((i * i / 7 + i / 256) % 251);
    text.close();
    return OpenDatasets({path, "auto", "bytes", config_.model.sequence, config_.model.vocab, 1})
        .value();
  }

  std::string folder_;
  Config config_;
  Plan plan_;
  std::optional<Datasets> data_;
};

using Case = std::tuple<const char*, bool, double>;  // the model's kind, tied embeddings, dropout

class StageRunnerTest : public testing::TestWithParam<Case> {
 protected:
  template <class T>
  void ExpectTheBitsOfOneChunk() {
    const auto expected = setting_.TrainedIn<T>(1, OneAfterAnother(1));
    for (const int chunks : {2, 3, 4}) {
      for (const Row& schedule : {OneAfterAnother(chunks), AsStages(chunks)}) {
        const auto trained = setting_.TrainedIn<T>(chunks, schedule);
        EXPECT_EQ(expected.Losses(), trained.Losses()) << chunks;
        EXPECT_EQ(expected.Gradients(), trained.Gradients()) << chunks;
        EXPECT_EQ(expected.ValidationLosses(), trained.ValidationLosses()) << chunks;
      }
    }
  }

  template <class T>
  void ExpectTheBitsOfHostMemory() {
    const Schedule schedule = Whole(1, OneAfterAnother(1));
    const auto here = setting_.TrainedBy<T>(1, schedule, false);
    const auto there = setting_.TrainedBy<T>(1, schedule, true);
    EXPECT_EQ(here.Losses(), there.Losses());
    EXPECT_EQ(here.Gradients(), there.Gradients());
    EXPECT_EQ(here.ValidationLosses(), there.ValidationLosses());
  }

  const Setting setting_{std::get<0>(GetParam()), std::get<1>(GetParam()), std::get<2>(GetParam())};
};

TEST_P(StageRunnerTest, ChunksGiveTheBitsOfOne) {
  ExpectTheBitsOfOneChunk<float>();
  ExpectTheBitsOfOneChunk<kernels::BFloat16>();
}

// From initial values to updates, all of it: the guarded device ends the process otherwise.
TEST_P(StageRunnerTest, TheHostTouchesNoMemoryOfTheDevice) {
  ExpectTheBitsOfHostMemory<float>();
  ExpectTheBitsOfHostMemory<kernels::BFloat16>();
}

// A matrix that embedding and head share gets the same sums in another order; nothing else does.
TEST_P(StageRunnerTest, MicroBatchesInFlightGiveTheGradientsOfOneAfterAnother) {
  const auto one = setting_.TrainedIn<float>(1, OneAfterAnother(1));
  const bool tied = std::get<bool>(GetParam());
  for (const int chunks : {1, 2, 3}) {
    for (const int in_flight : {2, 3, kMicroBatches}) {
      const auto trained = setting_.TrainedIn<float>(chunks, Ahead(chunks, in_flight));
      if (!tied) {
        EXPECT_EQ(one.Losses(), trained.Losses()) << chunks << ", " << in_flight;
        EXPECT_EQ(one.Gradients(), trained.Gradients()) << chunks << ", " << in_flight;
        continue;
      }
      // Of the first step: the second one begins with other parameters.
      EXPECT_EQ(one.Losses()[0], trained.Losses()[0]) << chunks << ", " << in_flight;
      for (std::size_t i = 0; i < one.Gradients().size() / kSteps; ++i)
        ASSERT_NEAR(one.Gradients()[i], trained.Gradients()[i], 1e-7) << chunks << " at " << i;
    }
  }
}

TEST(StageRunner, KeepsAsManyStatesAsAreInFlight) {
  const Setting setting("gpt2", true, 0);
  const auto bytes = [&](const Row& schedule) {
    return setting.TrainedIn<float>(2, schedule).activation_bytes();
  };
  const std::size_t one = bytes(OneAfterAnother(2)), two = bytes(Ahead(2, 2)),
                    three = bytes(Ahead(2, 3));
  EXPECT_GT(two, one);
  EXPECT_EQ(three - two, two - one);
  // The first of two chunks is one micro-batch ahead of the second.
  const std::size_t as_stages = bytes(AsStages(2));
  EXPECT_GT(as_stages, one);
  EXPECT_LT(as_stages, two);
}

/// Forwards of each chunk's micro-batches in one go, then backwards, as breadth-first has them.
Row BreadthFirst(int chunks) {
  return ComputeOrder(ScheduleKind::kBreadthFirst, {1, chunks, kMicroBatches})->ranks.front();
}

// Each chunk's gradients go to the exchange once, with its own last micro-batch.
TEST(StageRunner, BreadthFirstGivesTheGradientsOfOneAfterAnother) {
  const Setting setting("llama", false, 0.2);
  const auto one = setting.TrainedIn<float>(1, OneAfterAnother(1));
  for (const int chunks : {1, 2, 4}) {
    const auto trained = setting.TrainedIn<float>(chunks, BreadthFirst(chunks));
    EXPECT_EQ(one.Losses(), trained.Losses()) << chunks;
    EXPECT_EQ(one.Gradients(), trained.Gradients()) << chunks;
  }
}

/// All chunks of a micro-batch backward in halves, weights `behind` micro-batches later.
Row InHalves(int chunks, int behind) {
  Row schedule;
  for (int i = 0; i < kMicroBatches + behind; ++i) {
    for (int chunk = 0; chunk < chunks && i < kMicroBatches; ++chunk)
      schedule.push_back({chunk, ActionKind::kForward, i});
    for (int chunk = chunks; chunk-- > 0 && i < kMicroBatches;)
      schedule.push_back({chunk, ActionKind::kBackwardInput, i});
    for (int chunk = chunks; chunk-- > 0 && i >= behind;)
      schedule.push_back({chunk, ActionKind::kBackwardWeight, i - behind});
  }
  return schedule;
}

TEST_P(StageRunnerTest, BackwardInHalvesGivesTheGradientsOfOnePiece) {
  const auto one = setting_.TrainedIn<float>(1, OneAfterAnother(1));
  for (const int chunks : {1, 2}) {
    for (const int behind : {0, 1, 3}) {
      const auto trained = setting_.TrainedIn<float>(chunks, InHalves(chunks, behind));
      // The head's part of a shared matrix comes in another order: bits of the first step's loss.
      EXPECT_EQ(one.Losses()[0], trained.Losses()[0]) << chunks << ", " << behind;
      for (std::size_t i = 0; i < one.Gradients().size() / kSteps; ++i)
        ASSERT_NEAR(one.Gradients()[i], trained.Gradients()[i], 1e-7) << chunks << " at " << i;
      if (std::get<bool>(GetParam())) continue;
      EXPECT_EQ(one.Gradients(), trained.Gradients()) << chunks << ", " << behind;
    }
  }
}

// With units, a matrix that embedding and head share is no exception: no order changes a bit.
TEST_P(StageRunnerTest, UnitsGiveTheSameBitsInAnyOrder) {
  const Setting setting{std::get<0>(GetParam()), std::get<1>(GetParam()), std::get<2>(GetParam()),
                        Reproducible::kLayout};
  const auto one = setting.TrainedIn<float>(1, OneAfterAnother(1));
  const auto expect_the_same = [&](int chunks, const Row& row) {
    const auto trained = setting.TrainedIn<float>(chunks, row);
    EXPECT_EQ(one.Losses(), trained.Losses()) << chunks;
    EXPECT_EQ(one.Gradients(), trained.Gradients()) << chunks;
    EXPECT_EQ(one.ValidationLosses(), trained.ValidationLosses()) << chunks;
  };
  for (const int chunks : {1, 2, 4}) {
    expect_the_same(chunks, OneAfterAnother(chunks));
    expect_the_same(chunks, AsStages(chunks));
    expect_the_same(chunks, Ahead(chunks, 3));
    expect_the_same(chunks, BreadthFirst(chunks));
    for (const int behind : {0, 1, 3}) expect_the_same(chunks, InHalves(chunks, behind));
  }
}

std::string RefusalOf(const Setting& setting, const Schedule& schedule) {
  try {
    setting.TrainedBy<float>(2, schedule);
  } catch (const FatalError& error) {
    return error.what();
  }
  return "";
}

// Whatever is changed in a rank's row is found before anything is computed.
TEST(StageRunner, RefusesAMutatedSchedule) {
  const Setting setting("gpt2", true, 0);
  const Schedule good = Whole(2, AsStages(2));
  ASSERT_EQ("", RefusalOf(setting, good));
  const std::size_t actions = good.ranks[0].size();
  for (std::size_t i = 0; i < actions; ++i) {
    Schedule dropped = good;
    dropped.ranks[0].erase(dropped.ranks[0].begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_THAT(RefusalOf(setting, dropped), testing::HasSubstr("schedule")) << "without " << i;
    for (std::size_t j = i + 1; j < actions; ++j) {
      Schedule swapped = good;
      auto& row = swapped.ranks[0];
      // Only micro-batches, of one stage and kind.
      if (row[i].stage != row[j].stage || row[i].kind != row[j].kind) continue;
      std::swap(row[i].micro_batch, row[j].micro_batch);
      EXPECT_THAT(RefusalOf(setting, swapped), testing::HasSubstr("schedule")) << i << ", " << j;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, StageRunnerTest,
                         testing::Combine(testing::Values("gpt2", "llama", "bert"), testing::Bool(),
                                          testing::Values(0.0, 0.2)));

}  // namespace
}  // namespace adaptive_train::stage_runner_test
