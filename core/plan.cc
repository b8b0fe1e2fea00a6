#include "core/plan.h"

#include <algorithm>
#include <map>

#include "core/json_reader.h"
#include "core/limits.h"
#include "core/runnable_plan.h"
#include "core/schedule/check.h"

namespace adaptive_train {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kPlanText[] = "plan";
constexpr std::size_t kMaxRanks = 65536;
constexpr std::int64_t kMaxBatch = std::int64_t{1} << 40;
constexpr std::int64_t kMaxBytes = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMaxLayer = 1 << 20;
constexpr const char* kListSchedule = "list";

Json ToObject(const RankPlan& rank) {
  Json object{{"rank", rank.rank},
              {"node", rank.device.node},
              {"device", rank.device.kind},
              {"device_index", rank.device.index},
              {"device_model", rank.device.model},
              {"device_memory_bytes", rank.device.memory_bytes},
              {"threads", rank.device.threads},
              {"cpus", rank.device.cpus},
              {"stage", rank.stage},
              {"replica", rank.replica},
              {"tensor_rank", rank.tensor_rank},
              {"first_sample", rank.first_sample},
              {"samples", rank.samples},
              {"micro_batch", rank.micro_batch},
              {"memory_bytes", rank.memory_bytes}};
  if (!rank.switches.empty()) object["switches"] = rank.switches;
  if (!rank.device.uuid.empty()) object["device_uuid"] = rank.device.uuid;
  if (!rank.device.nccl.empty()) object["device_nccl"] = rank.device.nccl;
  return object;
}

RankPlan ReadRank(const JsonReader& entry) {
  RankPlan rank;
  const auto most = static_cast<std::int64_t>(kMaxRanks);
  entry.Read("rank", rank.rank, 0, most);
  entry.Read("node", rank.device.node);
  entry.Read("device", rank.device.kind);
  entry.Read("device_index", rank.device.index, 0, most);
  entry.Read("device_model", rank.device.model);
  entry.Read("device_memory_bytes", rank.device.memory_bytes, 0, kMaxBytes);
  entry.Read("threads", rank.device.threads, 1, 4096);
  entry.ReadNumber("cpus", rank.device.cpus);
  if (entry.Has("switches")) entry.ReadTexts("switches", rank.switches);
  if (entry.Has("device_uuid")) entry.Read("device_uuid", rank.device.uuid);
  if (entry.Has("device_nccl")) entry.Read("device_nccl", rank.device.nccl);
  entry.Read("stage", rank.stage, 0, most);
  entry.Read("replica", rank.replica, 0, most);
  entry.Read("tensor_rank", rank.tensor_rank, 0, most);
  entry.Read("first_sample", rank.first_sample, 0, kMaxBatch);
  entry.Read("samples", rank.samples, 1, kMaxBatch);
  entry.Read("micro_batch", rank.micro_batch, 1, kMaxBatch);
  entry.Read("memory_bytes", rank.memory_bytes, 0, kMaxBytes);
  return rank;
}

Json ToObject(const StageLayers& chunk) {
  return {{"first_layer", chunk.first_layer}, {"end_layer", chunk.end_layer}};
}

StageLayers ReadChunk(const JsonReader& entry) {
  StageLayers chunk;
  entry.Read("first_layer", chunk.first_layer, 0, kMaxLayer);
  entry.Read("end_layer", chunk.end_layer, 1, kMaxLayer);
  return chunk;
}

Json ToObject(const StagePlan& stage) {
  Json chunks = Json::array();
  for (const StageLayers& chunk : stage.chunks) chunks.push_back(ToObject(chunk));
  return {{"chunks", chunks},
          {"ring", stage.ring},
          {"compressed_layers", stage.compressed_layers},
          {"all_reduce",
           {{"doubling_bytes", stage.all_reduce.doubling_bytes},
            {"halving_bytes", stage.all_reduce.halving_bytes},
            {"node_first", stage.all_reduce.node_first}}}};
}

StagePlan ReadStage(const JsonReader& entry) {
  StagePlan stage;
  if (entry.Has("chunks")) {
    entry.ReadList(
        "chunks", [&](const JsonReader& chunk) { stage.chunks.push_back(ReadChunk(chunk)); },
        kMaxRanks);
  } else {  // before there was interleaving
    stage.chunks.push_back(ReadChunk(entry));
  }
  entry.ReadIntegers("ring", stage.ring, 0, static_cast<std::int64_t>(kMaxRanks));
  entry.ReadIntegers("compressed_layers", stage.compressed_layers, 0, kMaxLayer);
  const JsonReader all_reduce = entry.Part("all_reduce");
  all_reduce.Read("doubling_bytes", stage.all_reduce.doubling_bytes, 0, kMaxBytes);
  all_reduce.Read("halving_bytes", stage.all_reduce.halving_bytes, 0, kMaxBytes);
  all_reduce.Read("node_first", stage.all_reduce.node_first);
  return stage;
}

Json ToObject(const StepParts& parts) {
  return {{"compute_s", parts.compute_s},
          {"bubble_s", parts.bubble_s},
          {"activations_s", parts.activations_s},
          {"gradients_s", parts.gradients_s},
          {"update_s", parts.update_s}};
}

StepParts ReadParts(const JsonReader& part) {
  StepParts parts;
  part.ReadNumber("compute_s", parts.compute_s);
  part.ReadNumber("bubble_s", parts.bubble_s);
  part.ReadNumber("activations_s", parts.activations_s);
  part.ReadNumber("gradients_s", parts.gradients_s);
  part.ReadNumber("update_s", parts.update_s);
  return parts;
}

Json Seconds(const std::optional<double>& seconds) {
  return seconds ? Json(*seconds) : Json(nullptr);
}

std::optional<double> ReadSeconds(const JsonReader& entry, const char* key) {
  if (entry.FindOptional(key) == nullptr) return std::nullopt;
  double seconds = 0;
  entry.ReadNumber(key, seconds);
  return seconds;
}

Json ToObject(const Alternative& alternative) {
  return {{"name", alternative.name},
          {"what", alternative.what},
          {"step_seconds", Seconds(alternative.step_seconds)}};
}

Alternative ReadAlternative(const JsonReader& entry) {
  Alternative alternative;
  entry.Read("name", alternative.name);
  entry.Read("what", alternative.what);
  alternative.step_seconds = ReadSeconds(entry, "step_seconds");
  return alternative;
}

Json ToObject(const ExchangeOrders& orders) {
  const CompressionOrders& c = orders.compression;
  return {{"gather", NameOf(orders.gather)},
          {"reproducible", NameOf(orders.reproducible)},
          {"keeping", {{"on", orders.keeping.on}, {"every", orders.keeping.every}}},
          {"compression",
           {{"mode", NameOf(c.mode)},
            {"s_min", c.s_min},
            {"s_max", c.s_max},
            {"density", c.density},
            {"variance", NameOf(c.variance)},
            {"beta", c.beta},
            {"flush_every", c.flush_every},
            {"flush", NameOf(c.flush)},
            {"values", NameOf(c.values)},
            {"zstd", c.zstd},
            {"local_steps", c.local_steps}}}};
}

/// A name that is none of the choices' is an error of the reader.
template <class Choice>
void ReadChoice(const JsonReader& part, const char* key, Choice& choice) {
  std::string name;
  part.Read(key, name);
  const auto found = ChoiceOf<Choice>(name);
  if (found) {
    choice = *found;
  } else {
    part.Refuse(key, fmt::format("must be one of {}", fmt::join(NamesOf<Choice>(), ", ")));
  }
}

ExchangeOrders ReadOrders(const JsonReader& part) {
  ExchangeOrders orders;
  ReadChoice(part, "gather", orders.gather);
  if (part.Has("reproducible")) ReadChoice(part, "reproducible", orders.reproducible);
  if (part.Has("keeping")) {
    const JsonReader keeping = part.Part("keeping");
    keeping.Read("on", orders.keeping.on);
    keeping.Read("every", orders.keeping.every, 0, std::int64_t{1} << 40);
  }
  const JsonReader compression = part.Part("compression");
  CompressionOrders& c = orders.compression;
  ReadChoice(compression, "mode", c.mode);
  compression.ReadNumber("s_min", c.s_min);
  compression.ReadNumber("s_max", c.s_max);
  compression.ReadNumber("density", c.density);
  ReadChoice(compression, "variance", c.variance);
  compression.ReadNumber("beta", c.beta);
  compression.Read("flush_every", c.flush_every, 0, std::int64_t{1} << 40);
  ReadChoice(compression, "flush", c.flush);
  if (c.s_max > kMostSparsity || c.s_min > c.s_max)
    compression.Refuse("s_max", fmt::format("not from s_min to {}", kMostSparsity));
  if (c.density < kLeastDensity || c.density > 1)
    compression.Refuse("density", fmt::format("not from {} to 1", kLeastDensity));
  if (c.beta > 1) compression.Refuse("beta", "not from 0 to 1");
  ReadChoice(compression, "values", c.values);
  if (c.values == ValueEncoding::kAuto && HoldsBack(c.mode))
    compression.Refuse("values", "is \"auto\", which a plan decides");
  if (c.values == ValueEncoding::kInt4 && HoldsBack(c.mode) && !SendsAll(c))
    compression.Refuse("values", "is for all elements: of mode auto, or topk of density 1");
  if (compression.Has("zstd")) compression.Read("zstd", c.zstd);
  if (c.zstd && c.values != ValueEncoding::kInt4) compression.Refuse("zstd", "is for values int4");
  if (compression.Has("local_steps"))
    compression.Read("local_steps", c.local_steps, 1, std::int64_t{1} << 40);
  return orders;
}

tl::unexpected<Error> Inconsistent(const std::string& what) {
  return Fail(fmt::format("{}: {}", kPlanText, what));
}

/// Every chunk follows the one before, and the schedule has an order for so many.
Result<void> CheckChunks(const Plan& plan) {
  if (plan.stages.empty()) return {};
  const std::size_t chunks = plan.stages.front().chunks.size();
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    if (chunks == 0 || plan.stages[s].chunks.size() != chunks)
      return Inconsistent(fmt::format("stage entry {} has {} chunks, the first one {}", s,
                                      plan.stages[s].chunks.size(), chunks));
  }
  int next = 0;
  for (std::size_t i = 0; i < chunks * plan.stages.size(); ++i) {
    const std::size_t s = i % plan.stages.size();
    const StageLayers& chunk = plan.stages[s].chunks[i / plan.stages.size()];
    if (chunk.first_layer != next || chunk.end_layer <= chunk.first_layer)
      return Inconsistent(fmt::format("stage entry {} does not follow the one before", s));
    next = chunk.end_layer;
  }
  if (plan.schedule == ScheduleKind::kZeroBubbleH1 && plan.recompute != Recompute::kNone)
    return Inconsistent("schedule: zb-h1 cannot be with recomputation");
  const auto order = ComputeOrder(plan.schedule, {plan.Pipeline(), static_cast<int>(chunks), 1});
  if (!order) return Inconsistent(order.error().message);
  return {};
}

/// Rows of a list schedule fit the plan and can run.
Result<void> CheckListed(const Plan& plan) {
  if (plan.listed.empty()) return {};
  if (plan.listed.size() != static_cast<std::size_t>(plan.data) || plan.Chunks() != 1 ||
      plan.recompute != Recompute::kNone)
    return Inconsistent("schedule: list needs rows for each replica, one chunk, no recomputation");
  for (int replica = 0; replica < plan.data; ++replica) {
    const auto read = ScheduleFromCsv(plan.listed[static_cast<std::size_t>(replica)]);
    if (!read) return Inconsistent(read.error().message);
    const bool fits = static_cast<int>(read->ranks.size()) == plan.Pipeline() &&
                      read->stages == plan.Pipeline() &&
                      read->micro_batches == MicroBatchesOf(plan, replica);
    if (!fits) return Inconsistent(fmt::format("rows of replica {} do not fit it", replica));
    if (const auto use = CheckSchedule(*read); !use) return Inconsistent(use.error().message);
  }
  return {};
}

bool Has(const StagePlan& stage, int layer) {
  return std::any_of(stage.chunks.begin(), stage.chunks.end(), [&](const StageLayers& chunk) {
    return layer >= chunk.first_layer && layer < chunk.end_layer;
  });
}

Result<void> CheckStages(const Plan& plan) {
  if (auto chunks = CheckChunks(plan); !chunks) return chunks;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const StagePlan& stage = plan.stages[s];
    const std::vector<int>& compressed = stage.compressed_layers;
    if (!std::is_sorted(compressed.begin(), compressed.end()) ||
        !std::all_of(compressed.begin(), compressed.end(),
                     [&](int layer) { return Has(stage, layer); }))
      return Inconsistent(fmt::format("stage entry {}: its compressed layers are not its own", s));
    std::vector<bool> seen(static_cast<std::size_t>(plan.data));
    for (const int replica : stage.ring) {
      if (replica >= plan.data || seen[static_cast<std::size_t>(replica)])
        return Inconsistent(fmt::format("stage entry {}: its ring does not fit", s));
      seen[static_cast<std::size_t>(replica)] = true;
    }
    if (!stage.ring.empty() && stage.ring.size() != seen.size())
      return Inconsistent(fmt::format("stage entry {}: its ring leaves replicas out", s));
  }
  return {};
}

Result<void> CheckNodes(const Plan& plan) {
  for (int s = 0; s < plan.Pipeline(); ++s) {
    if (!plan.stages[static_cast<std::size_t>(s)].all_reduce.node_first) continue;
    for (int part = 0; part < plan.tensor; ++part) {
      const int first = s * plan.data * plan.tensor + part;
      if (!EvenMembersByNode(plan, GroupsOf(plan, first).data).empty()) continue;
      return Inconsistent(
          fmt::format("stage entry {}: sums cannot begin inside nodes of unequally many ranks", s));
    }
  }
  return {};
}

Result<Plan> Checked(Plan plan) {
  const auto expected = static_cast<std::size_t>(plan.data) *
                        static_cast<std::size_t>(plan.tensor) * plan.stages.size();
  if (plan.ranks.empty() || plan.ranks.size() != expected || expected > kMaxRanks)
    return Inconsistent(fmt::format("{} ranks for {} stages, {} replicas and {} tensor ranks",
                                    plan.ranks.size(), plan.stages.size(), plan.data, plan.tensor));
  if (auto stages = CheckStages(plan); !stages) return tl::unexpected(stages.error());
  std::int64_t next = 0;
  for (std::size_t i = 0; i < plan.ranks.size(); ++i) {
    const RankPlan& rank = plan.ranks[i];
    const std::int64_t place =
        (std::int64_t{rank.stage} * plan.data + rank.replica) * plan.tensor + rank.tensor_rank;
    const RankPlan& first =
        plan.ranks[static_cast<std::size_t>(rank.replica * plan.tensor) % plan.ranks.size()];
    if (rank.replica == 0 && rank.tensor_rank == 0) next = 0;
    const bool good = rank.rank == static_cast<int>(i) && place == static_cast<std::int64_t>(i) &&
                      rank.replica < plan.data && rank.tensor_rank < plan.tensor &&
                      rank.first_sample == next && rank.samples == first.samples &&
                      rank.samples <= plan.global_batch;
    if (!good) return Inconsistent(fmt::format("rank entry {} is inconsistent", i));
    if (rank.tensor_rank == plan.tensor - 1) next += rank.samples;
    if (rank.replica == plan.data - 1 && rank.tensor_rank == plan.tensor - 1 &&
        next != plan.global_batch)
      return Inconsistent(fmt::format("{} replicas share {} samples of a global batch of {}",
                                      plan.data, next, plan.global_batch));
  }
  if (auto nodes = CheckNodes(plan); !nodes) return tl::unexpected(nodes.error());
  if (auto listed = CheckListed(plan); !listed) return tl::unexpected(listed.error());
  if (const std::string few = TooFewMicroBatches(plan); !few.empty()) return Inconsistent(few);
  return plan;
}

}  // namespace

std::int64_t RoundOf(const Plan& plan) {
  const CompressionOrders& orders = plan.orders.compression;
  return orders.mode == CompressionMode::kLocal && plan.data > 1 ? orders.local_steps : 1;
}

int MicroBatchesOf(const Plan& plan, int replica) {
  const RankPlan& first = plan.ranks[static_cast<std::size_t>(replica * plan.tensor)];
  return static_cast<int>((first.samples + first.micro_batch - 1) / first.micro_batch);
}

std::string ScheduleNameOf(const Plan& plan) {
  return plan.listed.empty() ? NameOf(plan.schedule) : kListSchedule;
}

Schedule OrderOf(const Plan& plan, int replica, int steps) {
  if (!plan.listed.empty())
    return ScheduleFromCsv(plan.listed[static_cast<std::size_t>(replica)]).value();
  const int micro_batches = MicroBatchesOf(plan, replica);
  return ComputeOrder(plan.schedule, {plan.Pipeline(), plan.Chunks(), micro_batches, steps})
      .value();
}

GroupMembers GroupsOf(const Plan& plan, int rank) {
  const RankPlan& own = plan.ranks[static_cast<std::size_t>(rank)];
  const auto at_end = [&](const RankPlan& some) {
    return some.stage == 0 || some.stage == plan.Pipeline() - 1;
  };
  GroupMembers groups;
  for (const RankPlan& other : plan.ranks) {
    const bool stage = other.stage == own.stage, replica = other.replica == own.replica,
               part = other.tensor_rank == own.tensor_rank;
    if (stage && part) groups.data.push_back(other.rank);
    if (stage && replica) groups.tensor.push_back(other.rank);
    if (replica && part) groups.pipeline.push_back(other.rank);
    if (replica && part && (at_end(other) == at_end(own)) && (stage || at_end(own)))
      groups.embedding_head.push_back(other.rank);
  }
  return groups;
}

std::vector<std::vector<int>> MembersByNode(const Plan& plan, const std::vector<int>& members) {
  std::vector<std::vector<int>> nodes;
  std::map<std::string, std::size_t> place;
  for (std::size_t number = 0; number < members.size(); ++number) {
    const RankPlan& rank = plan.ranks[static_cast<std::size_t>(members[number])];
    const auto [at, is_new] = place.try_emplace(rank.device.node, nodes.size());
    if (is_new) nodes.emplace_back();
    nodes[at->second].push_back(static_cast<int>(number));
  }
  return nodes;
}

std::vector<std::vector<int>> EvenMembersByNode(const Plan& plan, const std::vector<int>& members) {
  auto nodes = MembersByNode(plan, members);
  const bool even = std::all_of(nodes.begin(), nodes.end(), [&](const std::vector<int>& some) {
    return some.size() == nodes.front().size();
  });
  if (nodes.size() < 2 || !even) nodes.clear();
  return nodes;
}

std::string LayoutText(const Plan& plan) {
  std::vector<StageLayers> chunks;
  int next = 0;
  for (std::size_t c = 0; !plan.stages.empty() && c < plan.stages.front().chunks.size(); ++c) {
    for (const StagePlan& stage : plan.stages) {
      const bool follows = c < stage.chunks.size() && stage.chunks[c].first_layer == next &&
                           stage.chunks[c].end_layer > next;
      if (!follows) return "";
      chunks.push_back(stage.chunks[c]);
      next = chunks.back().end_layer;
    }
  }
  return next < 2 ? "" : ToText(chunks);
}

std::string ToJson(const Plan& plan) {
  const auto objects = [](const auto& entries) {
    Json list = Json::array();
    for (const auto& entry : entries) list.push_back(ToObject(entry));
    return list;
  };
  const Json json = {{"format_version", kFormatVersion},
                     {"global_batch", plan.global_batch},
                     {"data", plan.data},
                     {"tensor", plan.tensor},
                     {"recompute", static_cast<int>(plan.recompute)},
                     {"shard", plan.shard},
                     {"layout", LayoutText(plan)},
                     {"schedule", ScheduleNameOf(plan)},
                     {"listed", plan.listed},
                     {"orders", ToObject(plan.orders)},
                     {"memory_bytes", plan.memory_bytes},
                     {"step_seconds", Seconds(plan.step_seconds)},
                     {"bound_seconds", Seconds(plan.bound_seconds)},
                     {"parts", ToObject(plan.parts)},
                     {"stages", objects(plan.stages)},
                     {"ranks", objects(plan.ranks)},
                     {"alternatives", objects(plan.alternatives)},
                     {"why", plan.why}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<Plan> PlanFromJson(std::string_view text) {
  auto plan = ReadJson<Plan>(text, kPlanText, [](const nlohmann::json& json) -> Result<Plan> {
    Plan read;
    std::string error;
    const JsonReader reader(json, "", error);
    const auto most = static_cast<std::int64_t>(kMaxRanks);
    int recompute = 0;
    reader.Read("global_batch", read.global_batch, 1, kMaxBatch);
    reader.Read("data", read.data, 1, most);
    reader.Read("tensor", read.tensor, 1, most);
    reader.Read("recompute", recompute, 0, 2);
    reader.Read("shard", read.shard, 0, 2);
    if (reader.Has("listed")) reader.ReadAnyTexts("listed", read.listed);
    if (reader.Has("schedule") && read.listed.empty())
      ReadChoice(reader, "schedule", read.schedule);
    if (reader.Has("orders")) read.orders = ReadOrders(reader.Part("orders"));
    reader.Read("memory_bytes", read.memory_bytes, 0, kMaxBytes);
    read.recompute = static_cast<Recompute>(recompute);
    read.step_seconds = ReadSeconds(reader, "step_seconds");
    read.bound_seconds = ReadSeconds(reader, "bound_seconds");
    read.parts = ReadParts(reader.Part("parts"));
    const auto list = [&](const char* key, auto& out, auto one) {
      reader.ReadList(
          key, [&](const JsonReader& entry) { out.push_back(one(entry)); }, kMaxRanks);
    };
    list("stages", read.stages, ReadStage);
    list("ranks", read.ranks, ReadRank);
    list("alternatives", read.alternatives, ReadAlternative);
    reader.ReadTexts("why", read.why);
    if (!error.empty()) return Inconsistent(error);
    return read;
  });
  if (!plan) return plan;
  return Checked(std::move(*plan));
}

}  // namespace adaptive_train
