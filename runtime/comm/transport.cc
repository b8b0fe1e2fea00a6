#include "runtime/comm/transport.h"

#include <fmt/format.h>

#include <utility>

namespace adaptive_train {

std::shared_ptr<Part> Transport::Receive(int peer, std::uint64_t tag, void* data, std::size_t bytes,
                                         PartDone done) {
  return ReceiveUpTo(peer, tag, data, bytes,
                     [bytes, done = std::move(done)](const std::string& cause, std::size_t came) {
                       if (!cause.empty() || came == bytes) return done(cause);
                       done(fmt::format("the message has {} bytes, not {}", came, bytes));
                     });
}

}  // namespace adaptive_train
