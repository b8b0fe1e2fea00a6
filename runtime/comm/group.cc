#include "runtime/comm/group.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <functional>
#include <utility>

#include "runtime/comm/all_gather.h"
#include "runtime/comm/bitwise_all_reduce.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/node_first_all_reduce.h"
#include "runtime/comm/reduce_scatter.h"
#include "runtime/comm/ring_all_reduce.h"

namespace adaptive_train {
namespace {

/// One send or receive as an operation.
class Transfer final : public Operation, public std::enable_shared_from_this<Transfer> {
 public:
  using Begin = std::function<std::shared_ptr<Part>(PartDone)>;

  Transfer(std::string name, Transport& transport, int peer, Begin begin)
      : Operation(std::move(name)), transport_(transport), peer_(peer), begin_(std::move(begin)) {}

  void Start() override {
    part_ = begin_([self = shared_from_this()](const std::string& cause) { self->OnDone(cause); });
  }
  void Cancel(const std::string& cause) override {
    if (Done()) return;
    if (cause_.empty()) cause_ = cause;
    transport_.Cancel(part_);
  }

 private:
  void OnDone(const std::string& cause) {
    if (cause.empty()) return Complete(std::nullopt);
    Complete(CommError{Name(), peer_, cause_.empty() ? cause : cause_});
  }

  Transport& transport_;
  const int peer_;
  Begin begin_;
  std::string cause_;
  std::shared_ptr<Part> part_;
};

int NumberOf(int rank, const std::vector<int>& members) {
  const auto own = std::ranges::find(members, rank);
  assert(own != members.end());
  return static_cast<int>(own - members.begin());
}

std::string NameOf(const char* collective, const CollectiveLane& lane, Purpose purpose) {
  return fmt::format("{} {} of {}", collective, lane.sequence, NameOf(purpose));
}

}  // namespace

Group::Group(Communicator& communicator, GroupKind kind, std::vector<int> members)
    : communicator_(communicator),
      kind_(kind),
      members_(std::move(members)),
      rank_(NumberOf(communicator.Rank(), members_)),
      sends_(kPurposes * members_.size()),
      receives_(sends_.size()) {}

Request Group::Launch(std::shared_ptr<Operation> operation) {
  Transport& transport = communicator_.transport();
  transport.Post([operation] { operation->Start(); });
  return Request(std::move(operation), &transport);
}

std::uint64_t& Group::Sequence(std::vector<std::uint64_t>& of, Purpose purpose, int member) {
  return of[static_cast<std::size_t>(purpose) * members_.size() + static_cast<std::size_t>(member)];
}

Request Group::Send(int member, Purpose purpose, std::span<const std::byte> data) {
  const auto tag = PointToPointTag(kind_, purpose, rank_, Sequence(sends_, purpose, member)++);
  communicator_.Sent(purpose) += static_cast<std::int64_t>(data.size());
  Transport& transport = communicator_.transport();
  const int peer = RankOf(member);
  return Launch(std::make_shared<Transfer>(fmt::format("send of {}", NameOf(purpose)), transport,
                                           peer, [&transport, peer, tag, data](PartDone done) {
                                             return transport.Send(peer, tag, data.data(),
                                                                   data.size(), Sending::kWhenAsked,
                                                                   std::move(done));
                                           }));
}

Request Group::Receive(int member, Purpose purpose, std::span<std::byte> data) {
  const auto tag = PointToPointTag(kind_, purpose, member, Sequence(receives_, purpose, member)++);
  Transport& transport = communicator_.transport();
  const int peer = RankOf(member);
  return Launch(std::make_shared<Transfer>(fmt::format("receive of {}", NameOf(purpose)), transport,
                                           peer, [&transport, peer, tag, data](PartDone done) {
                                             return transport.Receive(peer, tag, data.data(),
                                                                      data.size(), std::move(done));
                                           }));
}

CollectiveLane Group::NextLane(Purpose purpose) {
  const std::uint64_t sequence = collectives_[static_cast<std::size_t>(purpose)]++;
  return {.transport = &communicator_.transport(),
          .rank = rank_,
          .size = Size(),
          .tag = CollectiveTag(kind_, purpose, sequence),
          .sent = &communicator_.Sent(purpose),
          .sequence = sequence,
          .group = &members_};
}

template <class T>
Request Group::StartAllReduce(Purpose purpose, std::span<T> data) {
  const CollectiveLane lane = NextLane(purpose);
  std::string name = NameOf("all-reduce", lane, purpose);
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

Request Group::AllReduce(Purpose purpose, std::span<float> data) {
  return StartAllReduce(purpose, data);
}
Request Group::AllReduce(Purpose purpose, std::span<double> data) {
  return StartAllReduce(purpose, data);
}

Request Group::AllGather(Purpose purpose, std::vector<std::span<std::byte>> chunks) {
  const CollectiveLane lane = NextLane(purpose);
  return Launch(std::make_shared<adaptive_train::AllGather>(NameOf("all-gather", lane, purpose),
                                                            lane, std::move(chunks), ways_.nodes));
}

Request Group::ReduceScatter(Purpose purpose, std::vector<std::span<float>> parts) {
  const CollectiveLane lane = NextLane(purpose);
  return Launch(std::make_shared<adaptive_train::ReduceScatter>(
      NameOf("reduce-scatter", lane, purpose), lane, std::move(parts)));
}

}  // namespace adaptive_train
