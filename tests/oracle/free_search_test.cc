// A search that may choose everything finds no worse plan than one that is told part of the answer.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/cluster.h"
#include "core/config.h"
#include "core/file_io.h"
#include "launcher/planner/build_problem.h"
#include "launcher/planner/search.h"
#include "launcher/planner/shapes.h"
#include "tests/oracle/random_problem.h"

namespace adaptive_train::oracle::free_search_test {
namespace {

using Json = nlohmann::json;

constexpr double kTolerance = 1.02;  // docs/planning.md, "The search"
constexpr const char* kExamples = SOURCE_DIR "/examples/";

/// Numbers that are fixed, 0 = free.
struct Restriction {
  int stages = 0, data = 0, tensor = 0;
  std::int64_t micro_batch = 0;
};

std::string InWords(const Restriction& r) {
  return fmt::format("pipeline={} data={} tensor={} micro_batch={}", r.stages, r.data, r.tensor,
                     r.micro_batch);
}

PlanProblem Restricted(PlanProblem problem, const Restriction& to) {
  if (to.stages > 0) problem.choices.pipeline = {to.stages};
  if (to.data > 0) problem.choices.data = {to.data};
  if (to.tensor > 0) problem.choices.tensor = {to.tensor};
  if (to.micro_batch > 0) problem.choices.micro_batch = {to.micro_batch};
  return problem;
}

/// Not all free; numbers of replicas are often powers of two, as people ask for them.
Restriction RandomRestriction(Draws& draws, const PlanProblem& problem) {
  const auto devices = static_cast<double>(problem.devices.size());
  const auto layers = static_cast<double>(problem.layers.size());
  Restriction r;
  if (draws.Chance(0.6)) r.stages = static_cast<int>(draws.LogUniform(1, layers + 0.99));
  if (draws.Chance(0.3)) r.micro_batch = std::int64_t{1} << draws.Integer(0, 3);
  if (draws.Chance(0.5)) {
    const auto& tensor = problem.choices.tensor;
    r.tensor =
        tensor[static_cast<std::size_t>(draws.Integer(0, static_cast<int>(tensor.size()) - 1))];
  }
  if (r.stages == 0 || draws.Chance(0.5))
    r.data = draws.Chance(0.5) ? 1 << draws.Integer(0, 8)
                               : static_cast<int>(draws.LogUniform(1, devices + 0.9));
  return r;
}

/// Few samples for many devices, so that whole micro-batches and exchanges weigh much.
PlanProblem FewSamples(std::uint64_t seed, int devices) {
  Draws draws(seed + 3000017);
  PlanProblem problem = LargeProblem(seed, devices);
  problem.global_batch = devices * draws.Integer(1, 8) / 8;
  problem.choices.tensor = {1, 2, 4};
  return problem;
}

/// Compares one free search with many restricted ones. Returns how many of these found a plan.
int ExpectNoWorse(const PlanProblem& problem, const std::vector<Restriction>& restrictions,
                  const std::string& name) {
  const auto free = FindLayout(problem);
  int found = 0;
  for (const Restriction& restriction : restrictions) {
    const auto restricted = FindLayout(Restricted(problem, restriction));
    if (!restricted) continue;
    ++found;
    if (!free) {
      ADD_FAILURE() << name << ": no free plan, but one with " << InWords(restriction);
      continue;
    }
    EXPECT_LE(free->cost.step, restricted->cost.step * kTolerance)
        << name << ": " << WordsOf(free->layout) << " is worse than " << InWords(restriction)
        << ", " << WordsOf(restricted->layout);
  }
  return found;
}

TEST(FreeSearch, IsNoWorseThanRandomRestrictionsOnRandomClusters) {
  int found = 0;
  for (const int devices : {64, 256})
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      const PlanProblem problem = FewSamples(seed, devices);
      Draws draws(seed);
      std::vector<Restriction> restrictions;
      for (int i = 0; i < 4; ++i) restrictions.push_back(RandomRestriction(draws, problem));
      found +=
          ExpectNoWorse(problem, restrictions, fmt::format("{} devices, seed {}", devices, seed));
    }
  EXPECT_GE(found, 9);
}

/// The example of 512 nodes under 16 switches, with other devices in its groups.
Json National() {
  return Json::parse(*ReadFile(std::string(kExamples) + "clusters/national-4096.json", 1 << 20));
}

PlanProblem ProblemOf(const Json& cluster_json) {
  const auto config = LoadConfig(std::string(kExamples) + "gpt-1.3b.toml", {});
  const auto cluster = ClusterFromJson(cluster_json.dump());
  if (!config || !cluster) {
    ADD_FAILURE() << (config ? cluster.error().message : config.error().message);
    return {};
  }
  PlanRequest request;
  request.global_batch = config->train.global_batch;
  auto built =
      BuildProblem(*cluster, DimsOf(config->model), FormatOf(config->train), Profile{}, request);
  EXPECT_TRUE(built) << built.error().message;
  return built ? std::move(built->problem) : PlanProblem{};
}

TEST(FreeSearch, IsNoWorseOnFourThousandDevicesOfThreeKinds) {
  EXPECT_EQ(ExpectNoWorse(ProblemOf(National()), {{13, 64, 2, 0}, {16, 43, 2, 0}, {26, 29, 2, 0}},
                          "national"),
            3);
}

TEST(FreeSearch, IsNoWorseOnThreeThousandDevicesOfFourKinds) {
  Json cluster = National();
  Json groups = Json::array();
  for (int i = 0; i < 12; ++i) {
    Json group = cluster["groups"][static_cast<std::size_t>(i < 9 ? i : i - 9)];
    group["prefix"] = fmt::format("g{}-", i + 1);
    group["switch"] = fmt::format("leaf{}", i + 1);
    if (i % 4 == 3) {
      group["device"]["model"] = "A30";
      group["device"]["tflops"] = 130;
      group["device"]["memory_gib"] = 24;
      group["nic_gbit_per_s"] = 100;
    }
    groups.push_back(group);
  }
  cluster["groups"] = groups;
  EXPECT_EQ(ExpectNoWorse(ProblemOf(cluster), {{0, 32, 0, 0}, {13, 32, 2, 0}, {8, 32, 2, 0}},
                          "four kinds"),
            3);
}

TEST(FreeSearch, IsNoWorseOnFiveHundredEqualNodes) {
  Json cluster = National();
  const Json a100 = cluster["groups"][1];
  for (std::size_t i = 0; i < cluster["groups"].size(); ++i) {
    Json group = a100;
    group["prefix"] = fmt::format("a{}-", i + 1);
    group["switch"] = cluster["groups"][i]["switch"];
    cluster["groups"][i] = group;
  }
  EXPECT_EQ(ExpectNoWorse(ProblemOf(cluster), {{14, 64, 4, 0}, {12, 128, 2, 0}, {0, 256, 0, 0}},
                          "equal nodes"),
            3);
}

}  // namespace
}  // namespace adaptive_train::oracle::free_search_test
