#include "core/measure_order.h"

#include <set>

#include "core/json_reader.h"

namespace adaptive_train {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kMeasureOrderText[] = "measure order";
constexpr std::size_t kMaxNodes = 65536;

void ReadRound(const JsonReader& entry, std::size_t nodes, std::vector<RankPair>& round) {
  std::vector<int> ranks;
  entry.ReadIntegers("pairs", ranks, 0, static_cast<std::int64_t>(nodes) - 1);
  const std::set<int> distinct(ranks.begin(), ranks.end());
  if (ranks.size() % 2 != 0 || distinct.size() != ranks.size())
    return entry.Refuse("pairs", "not pairs of ranks that are all different");
  for (std::size_t i = 0; i + 1 < ranks.size(); i += 2) {
    if (ranks[i] > ranks[i + 1])
      return entry.Refuse("pairs", "the smaller rank of a pair must come first");
    round.emplace_back(ranks[i], ranks[i + 1]);
  }
}

}  // namespace

std::string ToJson(const MeasureOrder& order) {
  Json nodes = Json::array(), rounds = Json::array();
  for (const MeasuredNode& node : order.nodes)
    nodes.push_back({{"name", node.name},
                     {"device_kind", node.device_kind},
                     {"threads", node.threads},
                     {"device", node.device}});
  for (const auto& round : order.rounds) {
    Json pairs = Json::array();
    for (const auto& [a, b] : round) {
      pairs.push_back(a);
      pairs.push_back(b);
    }
    rounds.push_back({{"pairs", pairs}});
  }
  const Json json = {{"format_version", kFormatVersion}, {"nodes", nodes}, {"rounds", rounds}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<MeasureOrder> MeasureOrderFromJson(std::string_view text) {
  return ReadJson<MeasureOrder>(
      text, kMeasureOrderText, [](const nlohmann::json& json) -> Result<MeasureOrder> {
        MeasureOrder order;
        std::string error;
        const JsonReader reader(json, "", error);
        reader.ReadList(
            "nodes",
            [&](const JsonReader& entry) {
              MeasuredNode& node = order.nodes.emplace_back();
              entry.Read("name", node.name);
              entry.Read("device_kind", node.device_kind);
              entry.Read("threads", node.threads, 1, 65536);
              entry.Read("device", node.device);
            },
            kMaxNodes);
        reader.ReadList(
            "rounds",
            [&](const JsonReader& entry) {
              ReadRound(entry, order.nodes.size(), order.rounds.emplace_back());
            },
            2 * kMaxNodes);
        if (error.empty() && order.nodes.empty()) error = "nodes: none";
        if (!error.empty()) return Fail(fmt::format("{}: {}", kMeasureOrderText, error));
        return order;
      });
}

}  // namespace adaptive_train
