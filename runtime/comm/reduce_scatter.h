// The reduce-scatter of parts, directly to their owners.
#pragma once

#include <cassert>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/memory_pool.h"
#include "runtime/comm/message_operation.h"

namespace adaptive_train {

/// Part r of member r becomes the sum over all members. They are added in member order, so every
/// run has the same bits. A member's other parts do not change. (P-1)/P of the whole is sent, in
/// one phase. Needs room for P-1 copies of the own part.
class ReduceScatter final : public CollectiveOperation {
 public:
  /// `parts`, [members], may differ in length or be empty; they belong to the operation until it is
  /// over.
  ReduceScatter(std::string name, const CollectiveLane& lane, std::vector<std::span<float>> parts)
      : CollectiveOperation(std::move(name), lane), parts_(std::move(parts)), received_(Size()) {
    assert(parts_.size() == Size());
  }

 private:
  void Begin() override {
    for (std::size_t i = 1; i < Size(); ++i) {
      const std::size_t member = (Own() + i) % Size();
      received_[member].resize(parts_[Own()].size());
      if (received_[member].empty()) continue;
      ReceiveFrom(member, Lane().tag + member,
                  std::as_writable_bytes(std::span(received_[member])));
    }
    for (std::size_t i = 1; i < Size(); ++i) {
      const std::size_t member = (Own() + i) % Size();
      if (!parts_[member].empty())
        SendTo(member, Lane().tag + Own(), std::as_bytes(parts_[member]));
    }
  }

  void End() override {
    if (Failed()) return;
    const std::span<float> own = parts_[Own()];
    for (std::size_t i = 0; i < own.size(); ++i) {
      float sum = 0;
      for (std::size_t member = 0; member < Size(); ++member)
        sum += member == Own() ? own[i] : received_[member][i];
      own[i] = sum;
    }
    received_ = {};
  }

  const std::vector<std::span<float>> parts_;
  std::vector<kernels::PooledVector<float>> received_;  // [members]; this rank's is empty
};

}  // namespace adaptive_train
