#include "core/plan.h"

#include "core/json.h"

namespace adaptive_train {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxRanks = 65536;

Json ToJson(const RankPlan& rank) {
  return {{"rank", rank.rank},
          {"node", rank.device.node},
          {"device", rank.device.kind},
          {"device_index", rank.device.index},
          {"device_model", rank.device.model},
          {"device_memory_bytes", rank.device.memory_bytes},
          {"threads", rank.device.threads},
          {"first_sample", rank.first_sample},
          {"samples", rank.samples},
          {"micro_batch", rank.micro_batch}};
}

RankPlan RankFromJson(const nlohmann::json& json) {
  RankPlan rank;
  json.at("rank").get_to(rank.rank);
  json.at("node").get_to(rank.device.node);
  json.at("device").get_to(rank.device.kind);
  json.at("device_index").get_to(rank.device.index);
  json.at("device_model").get_to(rank.device.model);
  json.at("device_memory_bytes").get_to(rank.device.memory_bytes);
  json.at("threads").get_to(rank.device.threads);
  json.at("first_sample").get_to(rank.first_sample);
  json.at("samples").get_to(rank.samples);
  json.at("micro_batch").get_to(rank.micro_batch);
  return rank;
}

Result<Plan> Checked(Plan plan) {
  std::int64_t next = 0;
  for (std::size_t i = 0; i < plan.ranks.size(); ++i) {
    const RankPlan& rank = plan.ranks[i];
    const bool good = rank.rank == static_cast<int>(i) && rank.first_sample == next &&
                      rank.samples >= 1 && rank.samples <= plan.global_batch &&
                      rank.micro_batch >= 1 && rank.device.threads >= 1 &&
                      rank.device.threads <= 4096;
    if (!good) return Fail(fmt::format("plan: rank entry {} is inconsistent", i));
    next += rank.samples;
  }
  if (plan.ranks.empty() || plan.ranks.size() > kMaxRanks || next != plan.global_batch) {
    return Fail(fmt::format("plan: {} ranks share {} samples of a global batch of {}",
                            plan.ranks.size(), next, plan.global_batch));
  }
  return plan;
}

}  // namespace

std::string ToJson(const Plan& plan) {
  Json ranks = Json::array();
  for (const RankPlan& rank : plan.ranks) ranks.push_back(ToJson(rank));
  Json json = {{"format_version", kFormatVersion},
               {"global_batch", plan.global_batch},
               {"memory_bytes", plan.memory_bytes},
               {"step_seconds", plan.step_seconds ? Json(*plan.step_seconds) : Json(nullptr)},
               {"ranks", ranks},
               {"why", plan.why}};
  return json.dump(2) + "\n";
}

Result<Plan> PlanFromJson(std::string_view text) {
  auto plan = ReadJson<Plan>(text, "plan", [](const nlohmann::json& json) -> Result<Plan> {
    Plan read;
    json.at("global_batch").get_to(read.global_batch);
    json.at("memory_bytes").get_to(read.memory_bytes);
    if (!json.at("step_seconds").is_null())
      read.step_seconds = json.at("step_seconds").get<double>();
    for (const auto& rank : json.at("ranks")) read.ranks.push_back(RankFromJson(rank));
    json.at("why").get_to(read.why);
    return read;
  });
  if (!plan) return plan;
  return Checked(std::move(*plan));
}

}  // namespace adaptive_train
