// States in memory: written by ranks of one plan, taken up by those of another after nodes are lost.
#include "runtime/buddy/state_keeper.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/config.h"
#include "kernels/host_memory.h"
#include "runtime/buddy/kept_checkpoint.h"
#include "runtime/comm/groups.h"
#include "tests/multi_process/forked_ranks.h"

namespace adaptive_train::state_keeper_test {
namespace {

/// The one line that is not about trouble.
constexpr const char* kHowOften = "keeps the state in memory";

namespace fs = std::filesystem;

/// One stage; the optimizer's state is shared out with `shard` = 1.
Plan PlanOf(int data, int tensor, int shard, const std::vector<std::string>& nodes) {
  Plan plan;
  plan.data = data;
  plan.tensor = tensor;
  plan.shard = shard;
  plan.global_batch = data;
  plan.orders.keeping = {true, 1};
  plan.stages = {{{{0, 4}}, {}, {}, {}}};
  for (int rank = 0; rank < data * tensor; ++rank) {
    RankPlan& own = plan.ranks.emplace_back();
    own.rank = rank;
    own.replica = rank / tensor;
    own.tensor_rank = rank % tensor;
    own.first_sample = own.replica;
    own.samples = 1;
    own.device.node = nodes[static_cast<std::size_t>(rank)];
  }
  return plan;
}

ModelDims Dims() {
  Config config;
  config.model.layers = 2;
  config.model.heads = 2;
  config.model.hidden = 128;  // shards of more than a block
  config.model.sequence = 8;
  return DimsOf(config.model);
}

/// One rank's arenas, in which each element says of what it is.
struct KeepingRank {
  KeepingRank(const Plan& plan, Group& world, KeptRun run, bool compress)
      : groups(world.communicator(), plan),
        slice(StageSlice::Whole(Dims())),
        layout(Dims(), std::span(&slice, 1),
               {plan.ranks[static_cast<std::size_t>(world.Rank())].tensor_rank, plan.tensor}),
        rule(BucketRule::Whole(layout.size(), plan.shard > 0 ? groups.data.Size() : 1)),
        keeper(std::move(run), plan, Arena(plan), 2, world,
               [this](const std::string& line) { notice += line; }) {
    for (std::size_t arena = 0; arena < (compress ? kTrainingArenas : kResiduals); ++arena)
      arenas[arena].assign(static_cast<std::size_t>(layout.size()), 7.0F);
  }
  KeptArena Arena(const Plan& plan) const {
    KeptArena arena;
    arena.blocks = BlocksOf(layout);
    arena.parameters = ParametersOf(ParameterLayout(Dims(), StageSlice::Whole(Dims())));
    arena.elements = layout.size();
    if (plan.shard > 0) arena.share = ArenaShare{rule, groups.data.Rank()};
    return arena;
  }
  ElementRanges Held() const { return rule.OwnedBy(rule.places > 1 ? groups.data.Rank() : 0); }
  /// By the element's place in the whole model, and in residuals by the data rank.
  float ValueAt(std::size_t arena, std::int64_t step, std::int64_t place, int data_rank) const {
    return static_cast<float>(place % 65521) + 0.25F * static_cast<float>(arena) +
           0.0625F * static_cast<float>(step % 4) +
           (arena == kResiduals ? 100'000.0F * static_cast<float>(data_rank) : 0.0F);
  }
  std::vector<ArenaRun> Runs() const {
    const auto parameters = ParametersOf(ParameterLayout(Dims(), StageSlice::Whole(Dims())));
    const ModelPlaces places(parameters);
    const ArenaMap map = *ArenaMap::Of(places, BlocksOf(layout));
    return map.RunsOf({{0, map.size()}});
  }
  /// Outside of what is held, sharded ranks have nothing that counts.
  void Fill(std::int64_t step) {
    for (std::size_t arena = 0; arena < kTrainingArenas; ++arena) {
      if (arenas[arena].empty()) continue;
      for (const ArenaRun& run : Runs())
        for (std::int64_t i = 0; i < run.count; ++i)
          arenas[arena][static_cast<std::size_t>(run.begin + i)] =
              ValueAt(arena, step, run.place + i, groups.data.Rank());
    }
  }
  void Keep(std::int64_t step) {
    Fill(step);
    keeper.AfterStep(0.1, true,
                     [step] {
                       return CheckpointStep{step, step, "it", {{"samples", 1.0}}, {}};
                     },
                     {&memory, {arenas[0], arenas[1], arenas[2], arenas[3]}});
  }
  std::optional<CheckpointStep> Restore(std::int64_t least = 0) {
    return keeper.Restore(least, {BlocksOf(layout), Held(), groups.data.Rank(), groups.data.Size()},
                          {&memory, {arenas[0], arenas[1], arenas[2], arenas[3]}},
                          [] { return std::span<float>(); });
  }
  bool StateIs(std::int64_t step) const {
    const ElementRanges held = Held();
    const auto is_held = [&](std::int64_t i) {
      return std::any_of(held.begin(), held.end(), [&](const ElementRange& range) {
        return i >= range.begin && i < range.end;
      });
    };
    for (std::size_t arena = 0; arena < kResiduals; ++arena)
      for (const ArenaRun& run : Runs())
        for (std::int64_t i = 0; i < run.count; ++i) {
          const float found = arenas[arena][static_cast<std::size_t>(run.begin + i)];
          const float wanted =
              is_held(run.begin + i) ? ValueAt(arena, step, run.place + i, 0) : 7.0F;
          RANK_REQUIRE(found == wanted, arena, run.begin + i, found, wanted);
        }
    return true;
  }
  bool ResidualsAreOf(std::int64_t step, const std::vector<int>& data_ranks) const {
    for (const ArenaRun& run : Runs())
      for (std::int64_t i = 0; i < run.count; ++i) {
        float sum = 0;
        for (const int rank : data_ranks) sum += ValueAt(kResiduals, step, run.place + i, rank);
        const float found = arenas[kResiduals][static_cast<std::size_t>(run.begin + i)];
        RANK_REQUIRE(found == sum, run.begin + i, found, sum);
      }
    return true;
  }

  std::string notice;
  Groups groups;
  const StageSlice slice;
  const ParameterLayout layout;
  kernels::HostMemory memory;
  std::array<std::vector<float>, kTrainingArenas> arenas;
  const BucketRule rule;
  StateKeeper keeper;
};

class StateKeeperTest : public testing::Test {
 protected:
  StateKeeperTest() : key_("test" + std::to_string(::getpid())) {}
  ~StateKeeperTest() override {
    for (const char* node : {"n1", "n2", "n3", "n4"}) Lose(node);
  }
  KeptRun Run(std::int64_t attempt, std::optional<std::int64_t> committed) const {
    return {key_, "0", attempt, committed};
  }
  std::string FolderOf(const std::string& node) const {
    return std::string(kKeptRoot) + "/" + Run(1, {}).FolderName(node);
  }
  void Lose(const std::string& node) const { fs::remove_all(FolderOf(node)); }
  /// Steps up to `last` of the first attempt.
  testing::AssertionResult Keep(const Plan& plan, std::int64_t last, bool compress = false,
                                std::int64_t attempt = 1) const {
    Ranks ranks(static_cast<int>(plan.ranks.size()), [&](Group& world) {
      KeepingRank rank(plan, world, Run(attempt, {}), compress);
      for (std::int64_t step = 1; step <= last; ++step) rank.Keep(step);
      RANK_REQUIRE(rank.notice.empty() || rank.notice.starts_with(kHowOften), rank.notice);
      return true;
    });
    return ranks.AllGood();
  }
  testing::AssertionResult Restores(const Plan& plan, std::int64_t step,
                                    std::int64_t committed = 100, std::int64_t attempt = 2) const {
    Ranks ranks(static_cast<int>(plan.ranks.size()), [&](Group& world) {
      KeepingRank rank(plan, world, Run(attempt, committed), false);
      const auto at = rank.Restore();
      RANK_REQUIRE(rank.notice.empty() || rank.notice.starts_with(kHowOften), rank.notice);
      RANK_REQUIRE(at.has_value() == (step > 0));
      RANK_REQUIRE(!at || at->step == step, at->step);
      return !at || rank.StateIs(step);
    });
    return ranks.AllGood();
  }

  const std::string key_;
};

TEST_F(StateKeeperTest, AnyLayoutTakesUpWhatAnyLayoutKeptWithoutANode) {
  const std::vector<Plan> writers = {
      PlanOf(4, 1, 0, {"n1", "n2", "n3", "n4"}), PlanOf(4, 1, 0, {"n1", "n1", "n2", "n2"}),
      PlanOf(4, 1, 1, {"n1", "n2", "n3", "n4"}), PlanOf(2, 2, 0, {"n1", "n1", "n2", "n2"}),
      PlanOf(1, 2, 0, {"n1", "n2"})};
  const std::vector<Plan> readers = {
      PlanOf(3, 1, 0, {"n1", "n3", "n4"}), PlanOf(3, 1, 1, {"n1", "n3", "n4"}),
      PlanOf(2, 2, 1, {"n1", "n1", "n3", "n4"}), PlanOf(1, 1, 0, {"n1"})};
  for (std::size_t writer = 0; writer < writers.size(); ++writer) {
    const Plan& reader = readers[writer % readers.size()];
    ASSERT_TRUE(Keep(writers[writer], 3)) << writer;
    Lose("n2");
    EXPECT_TRUE(Restores(reader, 3)) << writer;
    for (const char* node : {"n1", "n3", "n4"}) Lose(node);
  }
}

/// Whether the state of `step` is the whole one of the checkpoint.
testing::AssertionResult HoldsState(const CheckpointFolder& folder, const CheckpointOwner& owner,
                                    std::int64_t step) {
  Ranks one(1, [&](Group& world) {
    KeepingRank rank(PlanOf(1, 1, 0, {"n1"}), world, {}, false);
    auto reader = folder.Open(step, owner);
    RANK_REQUIRE(reader);
    RANK_REQUIRE(reader->Verify(0, 1));
    RANK_REQUIRE(
        reader->Read({BlocksOf(rank.layout), rank.Held(), 0, 1},
                     {&rank.memory, {rank.arenas[0], rank.arenas[1], rank.arenas[2], {}}}));
    return rank.StateIs(step);
  });
  return one.AllGood();
}

TEST_F(StateKeeperTest, OneNodesMemoryBecomesACheckpointWhereItHasAll) {
  const CheckpointOwner owner{
      "it", ParametersOf(ParameterLayout(Dims(), StageSlice::Whole(Dims()))), {}};
  const fs::path path = fs::temp_directory_path() / key_;
  const CheckpointFolder folder(path);
  for (const Plan& plan :
       {PlanOf(4, 1, 0, {"n1", "n1", "n2", "n2"}), PlanOf(2, 1, 1, {"n1", "n2"})}) {
    ASSERT_TRUE(Keep(plan, 5, plan.shard == 0));
    int blocks = 0;
    const auto step = SaveKept({FolderOf("n1"), 1, 4, {}, [&] { ++blocks; }}, folder, owner);
    ASSERT_TRUE(step) << step.error().message;
    EXPECT_EQ(*step, 4) << "the newest that all have reported";
    EXPECT_GT(blocks, 0);
    EXPECT_TRUE(HoldsState(folder, owner, 4));
    // In slot 1; slot 0 has step 5.
    std::fstream(FolderOf("n1") + "/attempt-1-rank-0-state-1", std::ios::in | std::ios::out)
        .seekp(-4, std::ios::end)
        .write("torn", 4);
    const auto newer = SaveKept({FolderOf("n1"), 1, 4}, folder, owner);
    ASSERT_TRUE(newer) << newer.error().message;
    EXPECT_EQ(*newer, 5);
    EXPECT_TRUE(HoldsState(folder, owner, 5));
    EXPECT_FALSE(SaveKept({FolderOf("n1"), 6, 5}, folder, owner)) << "nothing so new";
    fs::remove_all(path);
    for (const char* node : {"n1", "n2"}) Lose(node);
  }
  ASSERT_TRUE(Keep(PlanOf(4, 1, 1, {"n1", "n2", "n3", "n4"}), 2));
  const auto none = SaveKept({FolderOf("n1"), 1, 2}, folder, owner);
  ASSERT_FALSE(none);
  EXPECT_TRUE(none.error().message.ends_with("other nodes have parts of it"))
      << none.error().message;
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(StateKeeperTest, TwoNodesThatAreBuddiesTakeAShardedStateAlong) {
  const Plan writer = PlanOf(4, 1, 1, {"n1", "n2", "n3", "n4"});
  ASSERT_TRUE(Keep(writer, 2));
  Lose("n2");
  Lose("n4");
  EXPECT_TRUE(Restores(PlanOf(2, 1, 1, {"n1", "n3"}), 0));
}

TEST_F(StateKeeperTest, GoesOnAfterTheLastStepThatAllHaveReported) {
  const Plan plan = PlanOf(2, 1, 1, {"n1", "n2"});
  ASSERT_TRUE(Keep(plan, 6));
  EXPECT_TRUE(Restores(plan, 5, 5));
}

TEST_F(StateKeeperTest, GoesOnAfterAStepThatNotAllHaveReportedWhereBothSlotsAreNewer) {
  const Plan plan = PlanOf(2, 1, 1, {"n1", "n2"});
  ASSERT_TRUE(Keep(plan, 6));
  EXPECT_TRUE(Restores(plan, 5, 3));
}

TEST_F(StateKeeperTest, BeginsAgainRatherThanAfterStepsOfWhichNothingWasReported) {
  const Plan plan = PlanOf(2, 1, 1, {"n1", "n2"});
  ASSERT_TRUE(Keep(plan, 2));
  EXPECT_TRUE(Restores(plan, 0, 0));
}

TEST_F(StateKeeperTest, TornPartsAreNoticedAndTheStateBeforeIsTaken) {
  const Plan plan = PlanOf(2, 1, 1, {"n1", "n1"});
  ASSERT_TRUE(Keep(plan, 4));
  // Step 4 is in the second slot.
  std::fstream file(FolderOf("n1") + "/attempt-1-rank-1-state-1",
                    std::ios::in | std::ios::out | std::ios::binary);
  ASSERT_TRUE(file);
  file.seekp(-5, std::ios::end);
  file.put('\x55');
  file.close();
  Ranks ranks(2, [&](Group& world) {
    KeepingRank rank(plan, world, Run(2, 100), false);
    const auto at = rank.Restore();
    RANK_REQUIRE(at && at->step == 3);
    return rank.StateIs(3);
  });
  EXPECT_TRUE(ranks.AllGood());
}

TEST_F(StateKeeperTest, ALaterAttemptsStateGoesBeforeAnEarlierOnesAndRemovesIt) {
  const Plan plan = PlanOf(2, 1, 0, {"n1", "n2"});
  ASSERT_TRUE(Keep(plan, 9));
  Ranks ranks(2, [&](Group& world) {
    KeepingRank rank(plan, world, Run(2, 8), false);
    RANK_REQUIRE(rank.Restore()->step == 8);
    for (const std::int64_t step : {9, 10}) rank.Keep(step);
    return true;
  });
  ASSERT_TRUE(ranks.AllGood());
  for (const auto& entry : fs::directory_iterator(FolderOf("n1")))
    EXPECT_EQ(entry.path().filename().string().substr(0, 9), "attempt-2");
  EXPECT_TRUE(Restores(plan, 10, 10, 3));
}

TEST_F(StateKeeperTest, EachRankGetsItsResidualsBackAndThoseOfLostRanks) {
  const Plan plan = PlanOf(4, 1, 0, {"n1", "n2", "n3", "n4"});
  ASSERT_TRUE(Keep(plan, 3, true));
  Lose("n4");
  const auto take = [&](const Plan& reader, std::int64_t attempt) {
    Ranks ranks(static_cast<int>(reader.ranks.size()), [&](Group& world) {
      KeepingRank rank(reader, world, Run(attempt, 100), true);
      const auto at = rank.Restore();
      RANK_REQUIRE(at && at->step == 3);
      std::vector<int> taken;
      for (int of = world.Rank(); of < 4; of += world.Size()) taken.push_back(of);
      return rank.StateIs(3) && rank.ResidualsAreOf(3, taken);
    });
    return ranks.AllGood();
  };
  EXPECT_TRUE(take(plan, 2));
  EXPECT_TRUE(take(PlanOf(3, 1, 0, {"n1", "n2", "n3"}), 3));
}

TEST_F(StateKeeperTest, OlderThanTheCheckpointIsNotTaken) {
  const Plan plan = PlanOf(1, 1, 0, {"n1"});
  ASSERT_TRUE(Keep(plan, 3));
  Ranks ranks(1, [&](Group& world) {
    KeepingRank rank(plan, world, Run(2, 100), false);
    RANK_REQUIRE(!rank.Restore(4));
    RANK_REQUIRE(rank.Restore(3));
    rank.keeper.Remove();
    return true;
  });
  EXPECT_TRUE(ranks.AllGood());
  EXPECT_FALSE(fs::exists(FolderOf("n1")));
}

// One that is newer than what was reported was refused: training would have gone on after it.
TEST_F(StateKeeperTest, OlderThanACheckpointThatNothingWasReportedOfIsTaken) {
  const Plan plan = PlanOf(1, 1, 0, {"n1"});
  ASSERT_TRUE(Keep(plan, 3));
  Ranks ranks(1, [&](Group& world) {
    KeepingRank rank(plan, world, Run(2, 3), false);
    const auto at = rank.Restore(4);
    return at && at->step == 3;
  });
  EXPECT_TRUE(ranks.AllGood());
}

TEST_F(StateKeeperTest, ReplicatedStateSendsNothingAndShardsGoOnce) {
  for (const int shard : {0, 1}) {
    const Plan plan = PlanOf(2, 1, shard, {"n1", "n2"});
    Ranks ranks(2, [&](Group& world) {
      KeepingRank rank(plan, world, Run(1, {}), false);
      for (std::int64_t step = 1; step <= 6; ++step) rank.Keep(step);
      const double sent = static_cast<double>(world.communicator().BytesSent(Purpose::kState));
      if (shard == 0) {
        RANK_REQUIRE(sent == 0, sent);
      } else {
        const double once = 12.0 * static_cast<double>(rank.layout.size()) / 2;
        RANK_REQUIRE(sent > 6 * once * 0.99 && sent < 6 * (once + 200'000), sent, once);
      }
      RANK_REQUIRE(world.Rank() > 0 || rank.notice.starts_with(kHowOften), rank.notice);
      return true;
    });
    EXPECT_TRUE(ranks.AllGood());
    for (const char* node : {"n1", "n2"}) Lose(node);
  }
}

TEST_F(StateKeeperTest, RanksThatAreKilledAtAnyMomentLeaveAWholeState) {
  const Plan plan = PlanOf(2, 1, 1, {"n1", "n2"});
  for (int round = 0; round < 12; ++round) {
    {
      Ranks ranks(2, [&](Group& world) {
        KeepingRank rank(plan, world, Run(1, {}), false);
        for (std::int64_t step = 1;; ++step) rank.Keep(step);
        return true;
      });
      const auto last = FolderOf("n1") + "/attempt-1-rank-0-state-1";
      while (!fs::exists(last)) ::usleep(1000);
      ::usleep(static_cast<useconds_t>(7000 + 1300 * round));
      ::kill(ranks.pids[static_cast<std::size_t>(round % 2)], SIGKILL);
      ::usleep(3000);
    }
    Ranks ranks(2, [&](Group& world) {
      KeepingRank rank(plan, world, Run(2, 1'000'000), false);
      const auto at = rank.Restore();
      RANK_REQUIRE(at);
      return rank.StateIs(at->step);
    });
    EXPECT_TRUE(ranks.AllGood()) << round;
    for (const char* node : {"n1", "n2"}) Lose(node);
  }
}

}  // namespace
}  // namespace adaptive_train::state_keeper_test
