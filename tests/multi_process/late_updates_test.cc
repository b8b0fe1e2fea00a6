// PipeDream-2BW in a run: every step's gradients are of weights that lack one update, as a single
// rank makes them that keeps all versions of its weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_device.h"
#include "runtime/model/transformer_stage.h"
#include "runtime/train/adamw_groups.h"
#include "runtime/train/lr_schedule.h"
#include "runtime/train/sample_loader.h"
#include "runtime/train/trainer.h"
#include "tests/multi_process/forked_ranks.h"

namespace adaptive_train::late_updates_test {
namespace {

constexpr std::int64_t kSteps = 10, kBatch = 16;
constexpr double kTolerance = 1e-4;

struct Shape {
  int stages = 2, replicas = 1, tensor = 1;
  std::int64_t micro_batch = 2;
  bool tied = true;
  int shard = 0;
  std::string precision = "fp32";
};

void WriteCorpus(const std::string& path) {
  std::ofstream text(path);
  for (int i = 0; i < 4000; ++i) text << (i * i) % 97 << (i % 11 == 0 ? ".\n" : " ");
}

Config ConfigOf(const Shape& shape, const std::string& folder) {
  Config config;
  config.model.layers = 4;
  config.model.heads = 2;
  config.model.hidden = 16;
  config.model.sequence = 8;
  config.model.tie_embeddings = shape.tied;
  config.data.train = folder + "/text";
  config.train.steps = kSteps;
  config.train.global_batch = kBatch;
  config.train.precision = shape.precision;
  config.train.validation_samples = 4;
  config.optimizer.lr = 0.02;
  config.optimizer.warmup_steps = 2;
  config.optimizer.clip = 0.5;
  config.checkpoint.dir = folder + "/checkpoints";
  config.profile.warmup_steps = 0;
  return config;
}

/// Of two replicas the first has 10 of 16 samples; of four stages 8, as the other one would have
/// fewer micro-batches than stages.
Plan PlanOf(const Shape& shape, const Config& config) {
  Plan plan;
  const std::int64_t first = shape.replicas == 1 ? kBatch : (shape.stages == 4 ? 8 : 10);
  plan.global_batch = kBatch;
  plan.data = shape.replicas;
  plan.tensor = shape.tensor;
  plan.shard = shape.shard;
  plan.schedule = ScheduleKind::kPipeDream2Bw;
  const int layers = static_cast<int>(config.model.layers) + 2;
  for (int s = 0; s < shape.stages; ++s) {
    plan.stages.emplace_back().chunks = {
        {layers * s / shape.stages, layers * (s + 1) / shape.stages}};
    for (int d = 0; d < shape.replicas; ++d) {
      for (int t = 0; t < shape.tensor; ++t) {
        RankPlan rank;
        rank.rank = static_cast<int>(plan.ranks.size());
        rank.device.node = "here";
        rank.device.kind = "cpu";
        rank.device.threads = 1;
        rank.stage = s;
        rank.replica = d;
        rank.tensor_rank = t;
        rank.first_sample = d * first;
        rank.samples = d == 0 ? first : kBatch - first;
        rank.micro_batch = shape.micro_batch;
        plan.ranks.push_back(rank);
      }
    }
  }
  return plan;
}

Datasets Open(const Config& config) {
  return OpenDatasets({config.data.train, "auto", "bytes", config.model.sequence,
                       TextVocab(config.model), static_cast<std::uint64_t>(config.train.seed)})
      .value();
}

/// One rank by definition: W(s) = W(s - 1) - update(g(W(s - 1 - late))), or the oldest version that
/// there is: a run that goes on after step `resumed` has those from W(resumed) on. Float32.
std::vector<double> LossesByDefinition(const Config& config, int late, std::int64_t resumed = 0) {
  const ModelDims dims = DimsOf(config.model);
  const StageSlice whole = StageSlice::Whole(dims);
  const StageOptions options{.micro_batch = kBatch};
  kernels::cpu::CpuDevice<float> device(1);
  const ParameterLayout layout(dims, whole);
  const auto size = static_cast<std::size_t>(layout.size());
  std::vector<float> read(size), gradients(size), first(size), second(size);
  std::vector<std::vector<float>> versions(1, std::vector<float>(size));
  InitializeParameters(layout, static_cast<std::uint64_t>(config.train.seed),
                       std::span<float>(versions.front()));
  StageWorkspace<float> workspace(dims, true, options, device);
  TransformerStage<float> stage(dims, whole, options, device, {layout, read, gradients}, workspace);
  MicroBatchState<float> state = stage.NewState();
  const Datasets data = Open(config);
  SampleLoader loader(dims, data, static_cast<std::uint64_t>(config.train.seed), kBatch);
  const auto targets = static_cast<double>(kBatch * loader.targets_per_sample());
  const OptimizerConfig& o = config.optimizer;
  const LrSchedule schedule{o.schedule, o.lr, o.warmup_steps, kSteps};
  std::vector<double> losses;
  for (std::int64_t step = 1; step <= kSteps; ++step) {
    const std::int64_t oldest = step > resumed ? resumed : 0;
    read = versions[static_cast<std::size_t>(std::max(oldest, step - 1 - late))];
    std::fill(gradients.begin(), gradients.end(), 0.0F);
    const Samples samples = loader.Training(step, 0, kBatch);
    losses.push_back(stage.ForwardBackward(state, samples, 1 / targets) / targets);
    double norm = 0;
    for (const float g : gradients) norm += static_cast<double>(g) * g;
    norm = std::sqrt(norm);
    versions.push_back(versions.back());
    AdamWStep<float>(device, layout, {o.beta1, o.beta2, 1e-8, o.weight_decay},
                     {versions.back(), gradients, first, second, {}}, 0, layout.size(), step,
                     schedule.At(step), norm > o.clip ? o.clip / norm : 1.0);
  }
  return losses;
}

double Difference(const std::vector<double>& some, const std::vector<double>& others) {
  double most = some.size() == others.size() ? 0 : INFINITY;
  for (std::size_t i = 0; i < std::min(some.size(), others.size()); ++i)
    most = std::max(most, std::abs(some[i] / others[i] - 1));
  return most;
}

/// What a rank is told, and what it is asked for: to stop after a step, 0 for never.
struct Told {
  std::vector<double> losses;
  std::int64_t stop_after = 0;

  TrainerEvents Events() {
    TrainerEvents events;
    events.stop_asked = [this] {
      return stop_after > 0 && static_cast<std::int64_t>(losses.size()) + 1 >= stop_after;
    };
    events.given_up = [] { return false; };
    events.take_checkpoint_asked = events.take_profile_asked = events.given_up;
    events.take_new_shares = [] { return std::nullopt; };
    events.on_step = [this](const RankMetrics& metrics) { losses.push_back(metrics.loss); };
    events.on_layer_times = [](const LayerTimes&) {};
    events.on_saving = [](const Saving&) {};
    events.on_saved = [](const Saved&) {};
    events.on_notice = [](const std::string&) {};
    events.on_decision = [](const Decision&) {};
    return events;
  }
};

/// Trains from the newest checkpoint on. Gives the last step.
std::int64_t Train(Group& world, const Config& config, const Plan& plan, Told& told) {
  const Datasets data = Open(config);
  auto trainer =
      Trainer::Make(config, plan, world.Rank(), world.communicator(), data, told.Events());
  trainer->Resume();
  return trainer->Run();
}

class LateUpdatesTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "late.XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    WriteCorpus(folder_ + "/text");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  /// All ranks' ten losses are those by definition, and not those of weights of another age.
  void ExpectTheDefinition(
      const Shape& shape, double tolerance = kTolerance, void (*change)(Config&) = [](Config&) {}) {
    Config config = ConfigOf(shape, folder_);
    change(config);
    const Plan plan = PlanOf(shape, config);
    Ranks ranks(static_cast<int>(plan.ranks.size()), [&](Group& world) {
      Told told;
      RANK_REQUIRE(Train(world, config, plan, told) == kSteps);
      if (world.Rank() > 0) return true;
      const double off = Difference(told.losses, LossesByDefinition(config, 1));
      RANK_REQUIRE(off < tolerance, off);
      for (const int late : {0, 2}) {
        const double other = Difference(told.losses, LossesByDefinition(config, late));
        RANK_REQUIRE(other > 3 * tolerance, late, other);
      }
      return true;
    });
    EXPECT_TRUE(ranks.AllGood()) << shape.stages << " stages, " << shape.replicas << " replicas, "
                                 << shape.tensor << " tensor ranks, shard " << shape.shard;
    std::filesystem::remove_all(config.checkpoint.dir);
  }

  std::string folder_;
};

TEST_F(LateUpdatesTest, RunsOfStagesAndReplicasTrainByTheDefinition) {
  for (const int stages : {2, 3, 4})
    for (const int replicas : {1, 2}) ExpectTheDefinition({.stages = stages, .replicas = replicas});
}

TEST_F(LateUpdatesTest, AsFewMicroBatchesAsStagesAndTwoMatricesToo) {
  ExpectTheDefinition({.stages = 2, .micro_batch = 8});
  ExpectTheDefinition({.stages = 4, .micro_batch = 4, .tied = false});
}

TEST_F(LateUpdatesTest, ShardsAndTensorRanksToo) {
  ExpectTheDefinition({.stages = 2, .replicas = 2, .shard = 1});
  ExpectTheDefinition({.stages = 2, .replicas = 2, .shard = 2});
  ExpectTheDefinition({.stages = 2, .tensor = 2});
}

// 16-bit weights are not those of the definition, which is in float32: within their precision.
TEST_F(LateUpdatesTest, RoundedWeightsToo) {
  ExpectTheDefinition({.stages = 3, .precision = "bf16"}, 1e-2);
}

// Before these the pipeline is emptied; a checkpoint needs no such thing.
TEST_F(LateUpdatesTest, ValidationAndMeasuredLayersAndCheckpointsChangeNothing) {
  ExpectTheDefinition({.stages = 3, .replicas = 2}, kTolerance, [](Config& config) {
    config.train.validate_every = 4;
    config.profile.warmup_steps = 2;
    config.checkpoint.every = 3;
  });
}

// What has begun is ended before a stop. A run that goes on begins as a new one: with one version.
TEST_F(LateUpdatesTest, AStopEmptiesThePipelineAndTheRunGoesOnFromThere) {
  const Shape shape{.stages = 3, .replicas = 2};
  const Config config = ConfigOf(shape, folder_);
  const Plan plan = PlanOf(shape, config);
  Ranks ranks(static_cast<int>(plan.ranks.size()), [&](Group& world) {
    Told told;
    told.stop_after = 4;
    RANK_REQUIRE(Train(world, config, plan, told) == 5);
    told.stop_after = 0;
    RANK_REQUIRE(Train(world, config, plan, told) == kSteps);
    const double off = Difference(told.losses, LossesByDefinition(config, 1, 5));
    RANK_REQUIRE(off < kTolerance, off);
    const double other = Difference(told.losses, LossesByDefinition(config, 1));
    RANK_REQUIRE(other > 10 * kTolerance, other);
    return true;
  });
  EXPECT_TRUE(ranks.AllGood());
}

}  // namespace
}  // namespace adaptive_train::late_updates_test
