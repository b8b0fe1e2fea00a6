// Ranks that NCCL may join are alike, whatever the cluster.
#include "core/nccl_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

namespace adaptive_train::nccl_groups_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Device Gpu(const std::string& node, int index, const std::string& model, const std::string& nccl) {
  Device device;
  device.node = node;
  device.kind = "cuda";
  device.index = index;
  device.model = model;
  device.nccl = nccl;
  return device;
}

Device Cpu(const std::string& node) {
  Device device;
  device.node = node;
  device.kind = "cpu";
  device.model = "EPYC";
  return device;
}

/// One stage of so many replicas.
Plan On(const std::vector<Device>& devices) {
  Plan plan;
  plan.data = static_cast<int>(devices.size());
  plan.stages.resize(1);
  for (const Device& device : devices) {
    RankPlan rank;
    rank.rank = rank.replica = static_cast<int>(plan.ranks.size());
    rank.device = device;
    plan.ranks.push_back(rank);
  }
  return plan;
}

LikeGroups Of(const std::vector<Device>& devices) {
  const Plan plan = On(devices);
  return LikeGroupsOf(plan, GroupsOf(plan, 0).data);
}

TEST(NcclGroups, LikeGpusAreOneGroup) {
  const LikeGroups like = Of({Gpu("a", 0, "H100", "2.28.9"), Gpu("a", 1, "H100", "2.28.9"),
                              Gpu("b", 0, "H100", "2.28.9")});
  EXPECT_THAT(like.alike, ElementsAre(ElementsAre(0, 1, 2)));
  EXPECT_THAT(like.alone, IsEmpty());
  EXPECT_THAT(like.joined_by_ucx, IsEmpty());
}

TEST(NcclGroups, ModelsAndVersionsAreKeptApartAndTheirFirstRanksJoined) {
  const LikeGroups like = Of({Gpu("a", 0, "V100", "2.28.9"), Gpu("b", 0, "A100", "2.28.9"),
                              Gpu("c", 0, "A100", "2.21.5"), Gpu("a", 1, "V100", "2.28.9"),
                              Gpu("b", 1, "A100", "2.28.9"), Gpu("c", 1, "A100", "2.21.5")});
  EXPECT_THAT(like.alike, ElementsAre(ElementsAre(0, 3), ElementsAre(1, 4), ElementsAre(2, 5)));
  EXPECT_THAT(like.joined_by_ucx, ElementsAre(0, 1, 2));
}

TEST(NcclGroups, WhatHasNoLikeIsOnUcxAlone) {
  const LikeGroups like =
      Of({Cpu("a"), Gpu("b", 0, "A100", "2.28.9"), Gpu("c", 0, "A100", ""), Gpu("d", 0, "A100", ""),
          Cpu("e"), Gpu("f", 0, "", "2.28.9"), Gpu("g", 0, "", "2.28.9")});
  EXPECT_THAT(like.alike, IsEmpty());
  EXPECT_THAT(like.alone, ElementsAre(0, 1, 2, 3, 4, 5, 6));
  EXPECT_EQ(like.joined_by_ucx, like.alone);
}

TEST(NcclGroups, AGpuThatRanksShareIsInACommunicatorOnce) {
  const LikeGroups like = Of({Gpu("a", 0, "H100", "2.28.9"), Gpu("a", 0, "H100", "2.28.9"),
                              Gpu("a", 1, "H100", "2.28.9")});
  EXPECT_THAT(like.alike, ElementsAre(ElementsAre(0, 2)));
  EXPECT_THAT(like.alone, ElementsAre(1));
  EXPECT_THAT(like.joined_by_ucx, ElementsAre(0, 1));
}

using Chance = std::mt19937;

int Below(Chance& chance, int limit) { return std::uniform_int_distribution(0, limit - 1)(chance); }

template <class T>
const T& OneOf(Chance& chance, const std::vector<T>& all) {
  return all[static_cast<std::size_t>(Below(chance, static_cast<int>(all.size())))];
}

/// Nodes of CPUs and of GPUs of few models and versions, so that likes and unlikes are often together.
std::vector<Device> MixedCluster(Chance& chance) {
  std::vector<Device> devices;
  const int nodes = 1 + Below(chance, 8);
  for (int n = 0; n < nodes; ++n) {
    const std::string node = "n" + std::to_string(n);
    const std::string nccl = OneOf<std::string>(chance, {"2.18.3", "2.28.9", "2.28.9", ""});
    const std::string model = OneOf<std::string>(chance, {"V100", "A100", "A100", "H100"});
    if (Below(chance, 4) == 0) devices.push_back(Cpu(node));
    const int gpus = Below(chance, 5);
    for (int i = 0; i < gpus; ++i) {
      const bool odd = Below(chance, 8) == 0;  // a node of two models
      devices.push_back(Gpu(node, i, odd ? "T4" : model, nccl));
      if (Below(chance, 16) == 0) devices.push_back(devices.back());
    }
  }
  if (devices.empty()) devices.push_back(Cpu("n0"));
  std::shuffle(devices.begin(), devices.end(), chance);
  return devices;
}

/// Stages, replicas and tensor ranks on the cluster's first devices.
Plan MixedPlan(Chance& chance) {
  const auto devices = MixedCluster(chance);
  const int count = static_cast<int>(devices.size());
  Plan plan;
  plan.data = 1 + Below(chance, count);
  plan.tensor = 1 + Below(chance, count / plan.data);
  plan.stages.resize(static_cast<std::size_t>(count / plan.data / plan.tensor));
  for (int stage = 0; stage < plan.Pipeline(); ++stage)
    for (int replica = 0; replica < plan.data; ++replica)
      for (int part = 0; part < plan.tensor; ++part) {
        RankPlan rank;
        rank.rank = static_cast<int>(plan.ranks.size());
        rank.device = devices[plan.ranks.size()];
        rank.stage = stage;
        rank.replica = replica;
        rank.tensor_rank = part;
        plan.ranks.push_back(rank);
      }
  return plan;
}

/// What is wrong with the groups; empty: nothing.
std::string WhatIsWrong(const Plan& plan, const std::vector<int>& members, const LikeGroups& like) {
  const auto device = [&](int rank) { return plan.ranks[static_cast<std::size_t>(rank)].device; };
  std::vector<int> all = like.alone, joined = like.alone;
  for (const std::vector<int>& group : like.alike) {
    if (group.size() < 2) return "a group of one";
    all.insert(all.end(), group.begin(), group.end());
    joined.push_back(group.front());
    for (const int a : group)
      for (const int b : group) {
        if (device(a).kind != "cuda") return "a CPU";
        if (device(a).model != device(b).model) return "unlike GPUs";
        if (device(a).nccl != device(b).nccl || device(a).nccl.empty()) return "unlike versions";
        if (a != b && device(a).node == device(b).node && device(a).index == device(b).index)
          return "one GPU twice";
      }
  }
  std::sort(all.begin(), all.end());
  if (all != members) return "not every member once";
  std::sort(joined.begin(), joined.end());
  std::vector<int> by_ucx = like.joined_by_ucx;
  std::sort(by_ucx.begin(), by_ucx.end());
  if (by_ucx != (joined.size() > 1 ? joined : std::vector<int>{})) return "not joined";
  return "";
}

TEST(NcclGroups, NoneOfTenThousandMixedClustersHasUnlikeRanksInOneGroup) {
  int groups = 0, mixed = 0;
  for (unsigned seed = 0; seed < 10'000; ++seed) {
    Chance chance(seed);
    const Plan plan = MixedPlan(chance);
    for (const RankPlan& rank : plan.ranks) {
      const GroupMembers of = GroupsOf(plan, rank.rank);
      for (const auto& members : {of.data, of.tensor, of.pipeline, of.embedding_head}) {
        const LikeGroups like = LikeGroupsOf(plan, members);
        ASSERT_EQ(WhatIsWrong(plan, members, like), "") << "cluster " << seed;
        groups += static_cast<int>(like.alike.size());
        mixed += !like.alike.empty() && !like.joined_by_ucx.empty();
      }
    }
  }
  EXPECT_GT(groups, 10'000);
  EXPECT_GT(mixed, 10'000);
}

}  // namespace
}  // namespace adaptive_train::nccl_groups_test
