#include "launcher/planner/all_reduce_choice.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <map>
#include <vector>

namespace adaptive_train {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kWorthIt = 0.9;         // of a ring's time
constexpr std::int64_t kFewBytes = 256;  // their time is latency alone
constexpr std::int64_t kLeastBytes = 1024;
constexpr std::int64_t kMostBytes = std::int64_t{4} << 20;  // a bucket of gradients

struct Message {
  int from = 0;  // ranks
  int to = 0;
  double bytes = 0;
};

/// The time of messages that are all sent at once.
double StepSeconds(const LinkTable& links, std::span<const int> nodes,
                   const std::vector<Message>& messages) {
  const auto node = [&](int rank) { return nodes[static_cast<std::size_t>(rank)]; };
  std::map<int, int> leave, arrive;
  for (const Message& message : messages) {
    if (node(message.from) == node(message.to)) continue;
    ++leave[node(message.from)];
    ++arrive[node(message.to)];
  }
  double seconds = 0;
  for (const Message& message : messages) {
    const int from = node(message.from), to = node(message.to);
    const LinkSpeed& link = links.At(from, to);
    if (link.bytes_per_second <= 0) return kInfinity;
    const int share = from == to ? 1 : std::max(leave[from], arrive[to]);
    seconds = std::max(seconds, link.latency_s + share * message.bytes / link.bytes_per_second);
  }
  return seconds;
}

double RingOf(const LinkTable& links, std::span<const int> nodes,
              const std::vector<std::vector<int>>& rings, double bytes) {
  std::vector<Message> messages;
  const std::size_t size = rings.front().size();
  for (const std::vector<int>& ring : rings)
    for (std::size_t i = 0; i < size; ++i)
      messages.push_back({ring[i], ring[(i + 1) % size], bytes / static_cast<double>(size)});
  return 2 * static_cast<double>(size - 1) * StepSeconds(links, nodes, messages);
}

std::vector<int> Numbered(std::size_t count) {
  std::vector<int> numbers(count);
  for (std::size_t i = 0; i < count; ++i) numbers[i] = static_cast<int>(i);
  return numbers;
}

/// An exchange between ranks whose numbers differ in one bit. Ranks beyond the largest power of two
/// hand in their values first and receive the sums afterwards.
double Bitwise(AllReduceWay way, const LinkTable& links, std::span<const int> nodes, double bytes) {
  const int size = static_cast<int>(nodes.size());
  const int core = static_cast<int>(std::bit_floor(nodes.size()));
  std::vector<Message> in, out;
  for (int rank = core; rank < size; ++rank) {
    in.push_back({rank, rank - core, bytes});
    out.push_back({rank - core, rank, bytes});
  }
  double seconds = StepSeconds(links, nodes, in) + StepSeconds(links, nodes, out);
  for (int distance = core / 2, part = 2; distance > 0; distance /= 2, part *= 2) {
    std::vector<Message> messages;
    for (int rank = 0; rank < core; ++rank)
      messages.push_back(
          {rank, rank ^ distance, way == AllReduceWay::kHalving ? bytes / part : bytes});
    seconds += (way == AllReduceWay::kHalving ? 2 : 1) * StepSeconds(links, nodes, messages);
  }
  return seconds;
}

double NodeFirst(const LinkTable& links, std::span<const int> nodes, double bytes) {
  std::vector<std::vector<int>> inside;
  std::map<int, std::size_t> place;
  for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
    const auto [at, is_new] = place.try_emplace(nodes[rank], inside.size());
    if (is_new) inside.emplace_back();
    inside[at->second].push_back(static_cast<int>(rank));
  }
  const std::size_t each = inside.front().size();
  for (const std::vector<int>& ranks : inside)
    if (ranks.size() != each) return kInfinity;
  if (each < 2 || inside.size() < 2) return kInfinity;
  std::vector<std::vector<int>> between(each);
  for (const std::vector<int>& ranks : inside)
    for (std::size_t i = 0; i < each; ++i) between[i].push_back(ranks[i]);
  return RingOf(links, nodes, inside, bytes) +
         RingOf(links, nodes, between, bytes / static_cast<double>(each));
}

}  // namespace

double AllReduceSeconds(AllReduceWay way, const LinkTable& links, std::span<const int> nodes,
                        double bytes) {
  if (nodes.size() < 2) return 0;
  if (way == AllReduceWay::kRing) return RingOf(links, nodes, {Numbered(nodes.size())}, bytes);
  if (way == AllReduceWay::kNodeFirst) return NodeFirst(links, nodes, bytes);
  return Bitwise(way, links, nodes, bytes);
}

AllReducePlan ChooseAllReduce(const LinkTable& links, std::span<const int> nodes) {
  AllReducePlan choice;
  const auto elsewhere = [&](int node) { return node != nodes.front(); };
  if (std::none_of(nodes.begin(), nodes.end(), elsewhere)) return choice;
  const auto seconds = [&](AllReduceWay way, std::int64_t bytes) {
    return AllReduceSeconds(way, links, nodes, static_cast<double>(bytes));
  };
  const auto worth_it = [&](AllReduceWay way, std::int64_t bytes) {
    return seconds(way, bytes) <= kWorthIt * seconds(AllReduceWay::kRing, bytes);
  };
  choice.node_first = worth_it(AllReduceWay::kNodeFirst, kMostBytes);
  const auto large = choice.node_first ? AllReduceWay::kNodeFirst : AllReduceWay::kRing;
  choice.doubling_bytes = kFewBytes;
  for (std::int64_t bytes = kLeastBytes; bytes <= kMostBytes; bytes *= 4) {
    const double least = kWorthIt * seconds(large, bytes);
    const double doubling = seconds(AllReduceWay::kDoubling, bytes);
    const double halving = seconds(AllReduceWay::kHalving, bytes);
    if (std::min(doubling, halving) > least) break;
    (doubling <= halving ? choice.doubling_bytes : choice.halving_bytes) = bytes;
  }
  return choice;
}

}  // namespace adaptive_train
