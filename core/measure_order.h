// What the launcher has the nodes measure, and where both sides find it.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/result.h"

namespace adaptive_train {

/// In the folder of the step: the order, and the Profile that rank 0 answers with.
inline constexpr char kMeasureOrderFile[] = "measure.json";
inline constexpr char kMeasuredFile[] = "measured.json";

/// How a rank's notice begins that tells which measurement failed; what follows is for people.
inline constexpr char kMeasureFailureWord[] = "failed: ";

/// One rank of the step: one node.
struct MeasuredNode {
  std::string name;
  std::string device_kind;  // under which its device's speed is kept
  int threads = 1;          // that the device may use
  bool device = true;       // its speed is to be measured, and the link inside the node
};

/// Two ranks, the smaller one first.
using RankPair = std::pair<int, int>;

/// A value; JSON with format_version.
struct MeasureOrder {
  std::vector<MeasuredNode> nodes;            // index = rank
  std::vector<std::vector<RankPair>> rounds;  // no rank twice in a round; done one after the other
};

std::string ToJson(const MeasureOrder& order);
/// Reads an order (untrusted). Fails in one line on garbage, ranks that are not there, a rank that
/// is twice in a round.
Result<MeasureOrder> MeasureOrderFromJson(std::string_view text);

}  // namespace adaptive_train
