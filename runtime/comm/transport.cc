#include "runtime/comm/transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/comm/request.h"

namespace adaptive_train {

std::shared_ptr<Part> Transport::Receive(int peer, std::uint64_t tag, void* data, std::size_t bytes,
                                         PartDone done) {
  return ReceiveUpTo(peer, tag, data, bytes,
                     [bytes, done = std::move(done)](const std::string& cause, std::size_t came) {
                       if (!cause.empty() || came == bytes) return done(cause);
                       done(fmt::format("the message has {} bytes, not {}", came, bytes));
                     });
}

void Transport::GiveUp() {
  Post([this, awaited = main_thread().GiveUp()] {
    Freeze();
    if (awaited) awaited->Abandon();
  });
}

RankStatus Transport::Status() {
  RankStatus status = main_thread().Status();
  status.peers = Traffic();
  std::ranges::stable_partition(status.peers, [](const PeerTraffic& p) { return p.awaited > 0; });
  if (status.peers.size() > kMaxStatusPeers) status.peers.resize(kMaxStatusPeers);
  return status;
}

}  // namespace adaptive_train
