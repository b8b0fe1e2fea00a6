// A rank that takes part in an exchange through owners by hand, and does one thing wrong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/exchange/owner_exchange.h"

namespace adaptive_train {

enum class ExchangeFault : std::uint8_t {
  kCorrupted,    // a bit of the last value is another
  kTruncated,    // the last byte is missing
  kEmpty,        // no bytes at all
  kTooLong,      // longer than any message of the chunk
  kTwice,        // sent two times
  kOtherBucket,  // the next bucket's message comes first
  kSilent,       // nothing is sent, in this phase and later
};

/// What is done wrong, in which phase, and to whom.
struct ExchangeFaultOrder {
  ExchangeFault fault = ExchangeFault::kCorrupted;
  ExchangePhase phase = ExchangePhase::kMessage;
  std::optional<int> victim;  // none: all
};

/// Sends float32 messages that select every element, well made but for the fault, and the sum
/// without looking at what it receives. Never fails; ends when all it waits for has come, or when
/// it is cancelled.
class FaultyExchange final : public Operation, public std::enable_shared_from_this<FaultyExchange> {
 public:
  FaultyExchange(const CollectiveLane& lane, BucketChunks chunks, const ExchangeFaultOrder& order);

  void Start() override;
  void Cancel(const std::string& cause) override;

 private:
  MessageBytes Made(ExchangePhase phase, int peer) const;
  void Receive(ExchangePhase phase, int peer);
  void Send(ExchangePhase phase, int peer);
  void SendOnce(ExchangePhase phase, int peer, MessageBytes bytes);
  void PartOver();

  const CollectiveLane lane_;
  const BucketChunks chunks_;
  const ExchangeFaultOrder order_;
  std::vector<MessageBytes> buffers_;
  std::vector<std::shared_ptr<Part>> parts_;
  std::size_t pending_ = 0;
};

}  // namespace adaptive_train
