// What nodes measure on the launcher's order, and the files for the order and the answer.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/result.h"

namespace adaptive_train {

/// Files in the folder of the step: the order, and the Profile that rank 0 answers with.
inline constexpr char kMeasureOrderFile[] = "measure.json";
inline constexpr char kMeasuredFile[] = "measured.json";

/// The start of a rank's notice about a failed measurement; text for people follows.
inline constexpr char kMeasureFailureWord[] = "failed: ";

/// One rank of the step: one node.
struct MeasuredNode {
  std::string name;
  std::string device_kind;  // under which its device's speed is stored
  int threads = 1;          // that the device may use
  bool device = true;       // measure its speed, and the link inside the node
};

/// Two ranks, the smaller one first.
using RankPair = std::pair<int, int>;

/// A value; JSON with format_version.
struct MeasureOrder {
  std::vector<MeasuredNode> nodes;            // index = rank
  std::vector<std::vector<RankPair>> rounds;  // no rank twice in a round; rounds run in sequence
};

std::string ToJson(const MeasureOrder& order);
/// Reads an untrusted order. Fails in one line on garbage, unknown ranks, or a rank that is twice
/// in a round.
Result<MeasureOrder> MeasureOrderFromJson(std::string_view text);

}  // namespace adaptive_train
