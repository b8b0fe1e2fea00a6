// Plans that tests of plans share.
#pragma once

#include <string>

#include "core/plan.h"

namespace adaptive_train {

/// Two replicas of one stage.
inline Plan TwoRanks() {
  Plan plan;
  plan.global_batch = 5;
  plan.memory_bytes = 1000;
  plan.why = {"because", "and so"};
  plan.data = 2;
  plan.stages = {{.chunks = {{0, 4}},
                  .ring = {1, 0},
                  .compressed_layers = {2},
                  .all_reduce = {1024, 4096, false}}};
  for (int i = 0; i < 2; ++i) {
    RankPlan rank;
    rank.rank = i;
    rank.device.node = "n" + std::to_string(i);
    if (i == 1) rank.switches = {"s0", "s1"};
    rank.device.kind = "cpu";
    rank.device.model = "model";
    rank.device.memory_bytes = 1 << 30;
    rank.device.threads = 2;
    rank.device.cpus = 1.5;
    rank.replica = i;
    rank.first_sample = i * 3;
    rank.samples = 3 - i;
    rank.micro_batch = 2;
    plan.ranks.push_back(rank);
  }
  return plan;
}

/// Two stages of two replicas, two tensor ranks each.
inline Plan EightRanks() {
  Plan plan;
  plan.global_batch = 6;
  plan.data = 2;
  plan.tensor = 2;
  plan.recompute = Recompute::kFull;
  plan.shard = 1;
  plan.stages = {{{{0, 3}}, {0, 1}, {}, {}}, {{{3, 8}}, {}, {}, {}}};
  for (int i = 0; i < 8; ++i) {
    RankPlan rank;
    rank.rank = i;
    rank.stage = i / 4;
    rank.replica = i / 2 % 2;
    rank.tensor_rank = i % 2;
    rank.first_sample = rank.replica * 4;
    rank.samples = rank.replica == 0 ? 4 : 2;
    plan.ranks.push_back(rank);
  }
  return plan;
}

}  // namespace adaptive_train
