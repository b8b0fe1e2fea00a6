#include "runtime/comm/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "runtime/comm/bitwise_all_reduce.h"
#include "runtime/comm/node_first_all_reduce.h"
#include "runtime/comm/ring_all_reduce.h"
#include "runtime/comm/ucx_thread.h"

namespace adaptive_train {
namespace {

// A tag is purpose (8 bits), source rank (16), point-to-point or sequence number (24), step in a
// collective (16).
constexpr std::uint64_t kPointToPoint = std::uint64_t{1} << 63;

std::uint64_t CollectiveTag(Purpose purpose, std::uint64_t sequence) {
  return (static_cast<std::uint64_t>(purpose) << 56) | ((sequence & 0xff'ffff'ffff) << 16);
}

std::uint64_t PointToPointTag(Purpose purpose, int source, std::uint64_t sequence) {
  return kPointToPoint | (static_cast<std::uint64_t>(purpose) << 56) |
         (static_cast<std::uint64_t>(source) << 40) | (sequence & 0xff'ffff'ffff);
}

const char* NameOf(Purpose purpose) {
  constexpr const char* kNames[] = {"gradients", "parameters", "activations", "statistics"};
  return kNames[static_cast<std::size_t>(purpose)];
}

/// One send or receive as an operation of its own.
class Transfer final : public Operation, public std::enable_shared_from_this<Transfer> {
 public:
  using Begin = std::function<std::shared_ptr<Part>(PartDone)>;

  Transfer(std::string name, UcxThread* thread, int peer, Begin begin)
      : Operation(std::move(name)), thread_(thread), peer_(peer), begin_(std::move(begin)) {}

  void Start() override {
    part_ = begin_([self = shared_from_this()](const std::string& cause) { self->OnDone(cause); });
  }
  void Cancel(const std::string& cause) override {
    if (Done()) return;
    if (cause_.empty()) cause_ = cause;
    thread_->Cancel(part_);
  }

 private:
  void OnDone(const std::string& cause) {
    if (cause.empty()) return Complete(std::nullopt);
    Complete(CommError{Name(), peer_, cause_.empty() ? cause : cause_});
  }

  UcxThread* thread_;
  const int peer_;
  Begin begin_;
  std::string cause_;
  std::shared_ptr<Part> part_;
};

}  // namespace

CollectiveLane CollectiveLane::Among(const std::vector<int>& ranks) const {
  const auto own = std::ranges::find(ranks, RankOf(static_cast<std::size_t>(rank)));
  assert(own != ranks.end());
  CollectiveLane lane = *this;
  lane.rank = static_cast<int>(own - ranks.begin());
  lane.size = static_cast<int>(ranks.size());
  lane.members = &ranks;
  return lane;
}

Communicator::Communicator(int rank, int size)
    : rank_(rank),
      size_(size),
      sends_(kPurposes * static_cast<std::size_t>(size)),
      receives_(sends_.size()) {}

Communicator::~Communicator() = default;

Result<std::unique_ptr<Communicator>> Communicator::Open(int rank, int size) {
  std::unique_ptr<Communicator> self(new Communicator(rank, size));
  auto thread = UcxThread::Start(rank);
  if (!thread) return tl::unexpected(thread.error());
  self->thread_ = std::move(*thread);
  return self;
}

const std::string& Communicator::Address() const { return thread_->Address(); }

void Communicator::Connect(std::vector<std::string> addresses) {
  assert(addresses.size() == static_cast<std::size_t>(size_));
  thread_->SetPeers(std::move(addresses));
}

Request Communicator::Launch(std::shared_ptr<Operation> operation) {
  thread_->Post([operation] { operation->Start(); });
  return Request(std::move(operation), thread_.get());
}

Request Communicator::Send(int peer, Purpose purpose, std::span<const std::byte> data) {
  auto& sequence = sends_[static_cast<std::size_t>(purpose) * static_cast<std::size_t>(size_) +
                          static_cast<std::size_t>(peer)];
  const auto tag = PointToPointTag(purpose, rank_, sequence++);
  sent_[static_cast<std::size_t>(purpose)] += static_cast<std::int64_t>(data.size());
  return Launch(std::make_shared<Transfer>(
      fmt::format("send of {}", NameOf(purpose)), thread_.get(), peer,
      [thread = thread_.get(), peer, tag, data](PartDone done) {
        return thread->Send(peer, tag, data.data(), data.size(), std::move(done));
      }));
}

Request Communicator::Receive(int peer, Purpose purpose, std::span<std::byte> data) {
  auto& sequence = receives_[static_cast<std::size_t>(purpose) * static_cast<std::size_t>(size_) +
                             static_cast<std::size_t>(peer)];
  const auto tag = PointToPointTag(purpose, peer, sequence++);
  return Launch(std::make_shared<Transfer>(
      fmt::format("receive of {}", NameOf(purpose)), thread_.get(), peer,
      [thread = thread_.get(), peer, tag, data](PartDone done) {
        return thread->Receive(peer, tag, data.data(), data.size(), std::move(done));
      }));
}

CollectiveLane Communicator::NextLane(Purpose purpose) {
  const auto index = static_cast<std::size_t>(purpose);
  const std::uint64_t sequence = collectives_[index]++;
  return {.thread = thread_.get(),
          .rank = rank_,
          .size = size_,
          .tag = CollectiveTag(purpose, sequence),
          .sent = &sent_[index],
          .sequence = sequence};
}

double Communicator::ThreadCpuSeconds() const { return thread_->CpuSeconds(); }

template <class T>
Request Communicator::StartAllReduce(Purpose purpose, std::span<T> data) {
  const CollectiveLane lane = NextLane(purpose);
  std::string name = fmt::format("all-reduce {} of {}", lane.sequence, NameOf(purpose));
  const auto bytes = static_cast<std::int64_t>(data.size_bytes());
  if (bytes <= ways_.doubling_bytes)
    return Launch(std::make_shared<DoublingAllReduce<T>>(std::move(name), lane, data));
  if (bytes <= ways_.halving_bytes)
    return Launch(std::make_shared<HalvingAllReduce<T>>(std::move(name), lane, data));
  if (!ways_.nodes.empty())
    return Launch(
        std::make_shared<NodeFirstAllReduce<T>>(std::move(name), lane, data, ways_.nodes));
  return Launch(std::make_shared<RingAllReduce<T>>(std::move(name), lane, data));
}

Request Communicator::AllReduce(Purpose purpose, std::span<float> data) {
  return StartAllReduce(purpose, data);
}
Request Communicator::AllReduce(Purpose purpose, std::span<double> data) {
  return StartAllReduce(purpose, data);
}

}  // namespace adaptive_train
