// What a rank is at and what it waits for, as it tells its launcher when no step ends for long.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace adaptive_train {

/// Messages between a rank and one of its peers since they were connected. `sent` and `sent_bytes`
/// count what was handed to the transport, whether or not it has arrived.
struct PeerTraffic {
  int rank = -1;  // the peer
  std::int64_t sent = 0, sent_bytes = 0;
  std::int64_t received = 0, received_bytes = 0;
  std::int64_t awaited = 0;  // messages that the rank is ready for and that have not come
};

/// One rank at one moment.
struct RankStatus {
  std::int64_t step = 0;         // optimizer step under way, from 1; 0: not training yet
  std::int64_t micro_batch = 0;  // of it, from 1; 0: none
  std::string work;              // what the main thread does: "computing"
  std::string operation;         // whose end it waits for: "all-reduce 3 of gradients"; or empty
  double seconds = 0;            // for how long it has been at that
  std::vector<PeerTraffic> peers;
};

/// A status names at most so many peers, those it waits for first.
inline constexpr std::size_t kMaxStatusPeers = 256;

}  // namespace adaptive_train
