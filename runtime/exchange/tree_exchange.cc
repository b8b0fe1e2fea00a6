#include "runtime/exchange/tree_exchange.h"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <utility>

namespace adaptive_train {
namespace {

/// values[i] += more[i].
void AddValues(std::size_t count, const float* more, float* values) {
  for (std::size_t i = 0; i < count; ++i) values[i] += more[i];
}

}  // namespace

TreeExchange::TreeExchange(std::string name, const CollectiveLane& lane, TreeExchangeOrder order)
    : CollectiveOperation(std::move(name), lane),
      order_(std::move(order)),
      packed_(Size()),
      received_(Size()) {
  assert(order_.shares.size() == Size() && order_.chunks.size() == Size() && !order_.trees.empty());
}

/// Messages to owners are numbered from 0 by their source, sums by their owner after them. Sums are
/// asked for last: where several are missing, the first message is named.
void TreeExchange::Begin() {
  const std::size_t chunk = SizeOf(Own()), trees = order_.trees.size();
  missing_ = chunk > 0 ? Size() - 1 : 0;
  for (std::size_t i = 1; i < Size(); ++i) {
    const std::size_t member = (Own() + i) % Size();
    const std::size_t count = trees * NodesOfMember(member) * chunk;
    if (count == 0) continue;
    received_[member] = std::make_unique_for_overwrite<float[]>(count);
    ReceiveFrom(member, Lane().tag + member,
                std::as_writable_bytes(std::span(received_[member].get(), count)),
                [this] { Arrived(); });
  }
  for (std::size_t i = 1; i < Size() && order_.gather; ++i) {
    const std::size_t member = (Own() + i) % Size();
    if (SizeOf(member) > 0) ReceiveFrom(member, Lane().tag + Size() + member, ResultOf(member));
  }
  SendChunks();
  if (missing_ == 0) SumOwnChunk();
}

/// Packed, so that sums may come into the arena while these are still on their way.
void TreeExchange::SendChunks() {
  for (std::size_t i = 1; i < Size(); ++i) {
    const std::size_t member = (Own() + i) % Size(), size = SizeOf(member);
    if (size == 0) continue;
    const std::size_t count = order_.trees.size() * order_.trees.front().size() * size;
    packed_[member] = std::make_unique_for_overwrite<float[]>(count);
    float* to = packed_[member].get();
    for (const std::vector<float*>& nodes : order_.trees) {
      for (const float* node : nodes)
        to = std::copy_n(node + order_.chunks[member].begin, size, to);
    }
    SendTo(member, Lane().tag + Own(), std::as_bytes(std::span(packed_[member].get(), count)),
           [this, member] { packed_[member].reset(); });
  }
}

void TreeExchange::Arrived() {
  if (--missing_ == 0) SumOwnChunk();
}

/// [trees][nodes of all members, ascending by their units].
std::vector<std::vector<float*>> TreeExchange::NodesOfOwnChunk() {
  std::vector<std::size_t> members(Size());
  std::iota(members.begin(), members.end(), std::size_t{0});
  std::ranges::sort(members, {}, [&](std::size_t m) { return order_.shares[m].begin; });
  std::vector<std::vector<float*>> trees(order_.trees.size());
  for (std::size_t tree = 0; tree < trees.size(); ++tree) {
    for (const std::size_t member : members) {
      const std::size_t count = NodesOfMember(member);
      for (std::size_t node = 0; node < count; ++node)
        trees[tree].push_back(
            member == Own() ? order_.trees[tree][node] + order_.chunks[Own()].begin
                            : received_[member].get() + (tree * count + node) * SizeOf(Own()));
    }
  }
  return trees;
}

void TreeExchange::SumOwnChunk() {
  const std::size_t size = SizeOf(Own());
  if (size == 0) return;
  std::vector<UnitRange> nodes;
  std::vector<UnitRange> shares = order_.shares;
  std::ranges::sort(shares, {}, &UnitRange::begin);
  for (const UnitRange& share : shares)
    for (const UnitRange& node : NodesOf(share, order_.units)) nodes.push_back(node);
  const std::vector<NodeAddition> additions = AdditionsToRoot(nodes, order_.units);
  const auto trees = NodesOfOwnChunk();
  for (const std::vector<float*>& tree : trees) {
    for (const auto& [into, from] : additions) AddValues(size, tree[from], tree[into]);
  }
  for (std::size_t tree = 1; tree < trees.size(); ++tree)
    AddValues(size, trees[tree].front(), trees.front().front());
  float* const result = order_.result.data() + order_.chunks[Own()].begin;
  if (trees.front().front() != result) std::copy_n(trees.front().front(), size, result);
  if (!order_.gather) return;
  for (std::size_t i = 1; i < Size(); ++i)
    SendTo((Own() + i) % Size(), Lane().tag + Size() + Own(), ResultOf(Own()));
}

std::span<std::byte> TreeExchange::ResultOf(std::size_t member) const {
  return std::as_writable_bytes(
      order_.result.subspan(static_cast<std::size_t>(order_.chunks[member].begin), SizeOf(member)));
}

void TreeExchange::End() { received_.clear(), packed_.clear(); }

}  // namespace adaptive_train
