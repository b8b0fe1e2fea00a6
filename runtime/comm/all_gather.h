// The all-gather of chunks, directly from their owners or through one rank of each node.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/comm/message_operation.h"

namespace adaptive_train {

/// Chunk r of every member becomes that of member r. Each owner sends its chunk directly to all
/// others, which receive it in place. Per rank P-1 copies of its chunk are sent, as on a ring, but
/// in one phase instead of P-1. With N nodes of m ranks a chunk goes to the owner's node, and to
/// the rank of the same place on each other node. That rank forwards it on its node at once. A node
/// then sends n (N-1)/N bytes to others instead of m times that.
class AllGather final : public CollectiveOperation {
 public:
  /// `chunks`, [members], may differ in length or be empty; they belong to the operation until it
  /// is over. `nodes` holds the members of each node, equally many, or is empty.
  AllGather(std::string name, const CollectiveLane& lane, std::vector<std::span<std::byte>> chunks,
            const std::vector<std::vector<int>>& nodes = {})
      : CollectiveOperation(std::move(name), lane), chunks_(std::move(chunks)) {
    assert(chunks_.size() == Size());
    if (nodes.empty()) return;
    sources_.resize(Size());
    const int own = lane.rank;
    const auto& inside = *std::ranges::find_if(
        nodes, [&](const auto& members) { return std::ranges::count(members, own) > 0; });
    const auto place = static_cast<std::size_t>(std::ranges::find(inside, own) - inside.begin());
    for (const auto& members : nodes) {
      for (std::size_t i = 0; i < members.size(); ++i) {
        const auto member = static_cast<std::size_t>(members[i]);
        sources_[member] = static_cast<std::size_t>(&members == &inside ? members[i] : inside[i]);
        if (&members != &inside && i == place) {
          sources_[member] = member;
          elsewhere_.push_back(member);
        }
      }
    }
    for (const int member : inside)
      if (member != own) beside_.push_back(static_cast<std::size_t>(member));
  }

 private:
  void Begin() override {
    for (std::size_t i = 1; i < Size(); ++i) {
      const std::size_t owner = (Own() + i) % Size();
      if (chunks_[owner].empty()) continue;
      ReceiveFrom(sources_.empty() ? owner : sources_[owner], Lane().tag + owner, chunks_[owner],
                  [this, owner] { PassOn(owner); });
    }
    if (sources_.empty()) {
      for (std::size_t i = 1; i < Size(); ++i) HandOut((Own() + i) % Size(), Own());
      return;
    }
    for (const std::size_t member : elsewhere_) HandOut(member, Own());
    for (const std::size_t member : beside_) HandOut(member, Own());
  }

  /// Empty chunks are neither sent nor received.
  void HandOut(std::size_t member, std::size_t owner) {
    if (!chunks_[owner].empty()) SendTo(member, Lane().tag + owner, chunks_[owner]);
  }

  void PassOn(std::size_t owner) {
    if (std::ranges::count(elsewhere_, owner) == 0) return;
    for (const std::size_t member : beside_) HandOut(member, owner);
  }

  const std::vector<std::span<std::byte>> chunks_;
  std::vector<std::size_t> sources_;    // [members], who sends their chunks to this one; or empty
  std::vector<std::size_t> elsewhere_;  // the members of the same place on other nodes
  std::vector<std::size_t> beside_;     // the other members on this node
};

}  // namespace adaptive_train
