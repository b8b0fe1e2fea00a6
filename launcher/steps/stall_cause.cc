#include "launcher/steps/stall_cause.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "core/file_io.h"

namespace adaptive_train {
namespace {

using Kind = StallCause::Kind;

constexpr std::size_t kNamedRanks = 8;
/// Of what a rank says of its work or operation.
constexpr std::size_t kMostStatusBytes = 100;

bool Waits(const RankRecord& rank) { return rank.status && !rank.status->operation.empty(); }

/// Who waits for whom. An end is a link (receiver, sender), or a rank and -1.
class WaitGraph {
 public:
  using End = std::pair<int, int>;

  explicit WaitGraph(std::span<const RankRecord> ranks) : ranks_(ranks), waiters_(ranks.size()) {
    for (std::size_t i = 0; i < ranks.size(); ++i)
      if (Waits(ranks[i])) AddEdgesOf(static_cast<int>(i));
  }

  /// The end that most ranks lead to.
  std::optional<StallCause> Find() const {
    std::optional<StallCause> best;
    for (const auto& [end, first] : ends_) {
      StallCause cause;
      std::tie(cause.rank, cause.peer) = end;
      cause.waiting = Leading(cause.rank, first);
      cause.kind = cause.peer >= 0         ? Kind::kLink
                   : At(cause.rank).status ? Kind::kWorking
                                           : Kind::kSilent;
      if (cause.kind == Kind::kLink) cause.bytes = Undelivered(cause.peer, cause.rank).bytes;
      if (!best || std::pair(cause.waiting.size(), cause.bytes) >
                       std::pair(best->waiting.size(), best->bytes))
        best = std::move(cause);
    }
    return best;
  }

  /// Two ranks that wait for each other.
  std::optional<End> MutualWait() const {
    for (std::size_t i = 0; i < waiters_.size(); ++i)
      for (const int waiter : waiters_[i]) {
        const auto& back = waiters_[static_cast<std::size_t>(waiter)];
        if (std::ranges::find(back, static_cast<int>(i)) != back.end())
          return End{static_cast<int>(i), waiter};
      }
    return std::nullopt;
  }

 private:
  struct Messages {
    std::int64_t count = 0, bytes = 0;
  };

  const RankRecord& At(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }

  const PeerTraffic* Traffic(int rank, int peer) const {
    if (!At(rank).status) return nullptr;
    const auto& peers = At(rank).status->peers;
    const auto found = std::ranges::find(peers, peer, &PeerTraffic::rank);
    return found == peers.end() ? nullptr : &*found;
  }

  /// From `sender` to `receiver`, as the two have counted.
  Messages Undelivered(int sender, int receiver) const {
    const PeerTraffic* sent = Traffic(sender, receiver);
    const PeerTraffic* received = Traffic(receiver, sender);
    if (sent == nullptr) return {};
    const std::int64_t count = received == nullptr ? 0 : received->received;
    const std::int64_t bytes = received == nullptr ? 0 : received->received_bytes;
    return {sent->sent - count, sent->sent_bytes - bytes};
  }

  void AddEdgesOf(int rank) {
    bool awaits = false;
    for (const PeerTraffic& peer : At(rank).status->peers) {
      if (peer.awaited <= 0 || !Known(peer.rank)) continue;
      awaits = true;
      if (Undelivered(peer.rank, rank).count > 0) {
        ends_[{rank, peer.rank}].push_back(rank);
      } else if (Waits(At(peer.rank))) {
        waiters_[static_cast<std::size_t>(peer.rank)].push_back(rank);
      } else {
        ends_[{peer.rank, -1}].push_back(rank);
      }
    }
    if (awaits) return;
    // It waits until what it has sent has left.
    for (const PeerTraffic& peer : At(rank).status->peers)
      if (Known(peer.rank) && Undelivered(rank, peer.rank).count > 0)
        ends_[{peer.rank, rank}].push_back(rank);
  }

  bool Known(int rank) const { return rank >= 0 && static_cast<std::size_t>(rank) < ranks_.size(); }

  /// All ranks but `end` that lead to the `first` ones, and those.
  std::vector<int> Leading(int end, const std::vector<int>& first) const {
    std::vector<bool> seen(ranks_.size(), false);
    std::vector<int> leading, next = first;
    while (!next.empty()) {
      const auto rank = static_cast<std::size_t>(next.back());
      next.pop_back();
      if (seen[rank]) continue;
      seen[rank] = true;
      if (static_cast<int>(rank) != end) leading.push_back(static_cast<int>(rank));
      next.insert(next.end(), waiters_[rank].begin(), waiters_[rank].end());
    }
    std::ranges::sort(leading);
    return leading;
  }

  const std::span<const RankRecord> ranks_;
  std::vector<std::vector<int>> waiters_;  // [ranks], who awaits a message that is not sent yet
  std::map<End, std::vector<int>> ends_;   // and the ranks right before them
};

std::string Name(int rank, std::span<const RankRecord> ranks) {
  return fmt::format("rank {} on {}", rank, ranks[static_cast<std::size_t>(rank)].host);
}

std::string ShownBytes(std::int64_t bytes) {
  if (bytes < 10'000) return fmt::format("{} bytes", bytes);
  if (bytes < 1'000'000) return fmt::format("{:.1f} kB", 1e-3 * static_cast<double>(bytes));
  return fmt::format("{:.1f} MB", 1e-6 * static_cast<double>(bytes));
}

/// The operation that a rank waits for, and for how long.
std::string WaitOf(int rank, std::span<const RankRecord> ranks) {
  const auto& status = ranks[static_cast<std::size_t>(rank)].status;
  if (!status || status->operation.empty()) return "";
  return fmt::format(" ({}, for {:.0f} s)", Printable(status->operation, kMostStatusBytes),
                     status->seconds);
}

std::string WorkOf(int rank, std::span<const RankRecord> ranks) {
  const RankStatus& status = *ranks[static_cast<std::size_t>(rank)].status;
  const std::string part =
      status.micro_batch > 0 ? fmt::format("micro-batch {}, ", status.micro_batch) : "";
  return fmt::format("{} is at: {} ({}for {:.0f} s)", Name(rank, ranks),
                     Printable(status.work, kMostStatusBytes), part, status.seconds);
}

std::string Root(const StallCause& cause, std::span<const RankRecord> ranks) {
  switch (cause.kind) {
    case Kind::kLink:
      return fmt::format("{} from {} have not reached {}{}", ShownBytes(cause.bytes),
                         Name(cause.peer, ranks), Name(cause.rank, ranks),
                         WaitOf(cause.rank, ranks));
    case Kind::kWorking:
      return WorkOf(cause.rank, ranks);
    case Kind::kSilent:
      return Name(cause.rank, ranks) + " does not say what it is at";
    case Kind::kEachOther:
      break;
  }
  if (cause.rank < 0) return "all ranks wait for each other" + WaitOf(0, ranks);
  return fmt::format("{} and {} wait for each other{}", Name(cause.rank, ranks),
                     Name(cause.peer, ranks), WaitOf(cause.rank, ranks));
}

}  // namespace

StallCause FindStallCause(std::span<const RankRecord> ranks) {
  const WaitGraph graph(ranks);
  if (auto cause = graph.Find()) return *cause;
  StallCause cause;
  if (const auto pair = graph.MutualWait()) {
    std::tie(cause.rank, cause.peer) = *pair;
    return cause;
  }
  // Nobody waits for a rank that works: the one that has been at it for longest.
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (Waits(ranks[i])) continue;
    const bool silent = !ranks[i].status;
    const auto& best = ranks[static_cast<std::size_t>(std::max(cause.rank, 0))].status;
    if (cause.rank < 0 || silent || ranks[i].status->seconds > best->seconds) {
      cause.kind = silent ? Kind::kSilent : Kind::kWorking;
      cause.rank = static_cast<int>(i);
    }
    if (silent) break;
  }
  return cause;
}

std::string NameRanks(std::span<const int> ranks) {
  const auto named = ranks.first(std::min(ranks.size(), kNamedRanks));
  const std::string more =
      ranks.size() > kNamedRanks ? fmt::format(" and {} more", ranks.size() - kNamedRanks) : "";
  return fmt::format("rank{} {}{}", ranks.size() == 1 ? "" : "s", fmt::join(named, ", "), more);
}

std::string Describe(const StallCause& cause, std::span<const RankRecord> ranks) {
  std::vector<int> others = cause.waiting;
  if (cause.kind == Kind::kLink) std::erase(others, cause.peer);
  if (others.empty()) return Root(cause, ranks);
  return fmt::format("{}; {} wait{} for {}", Root(cause, ranks), NameRanks(others),
                     others.size() == 1 ? "s" : "",
                     cause.kind == Kind::kLink ? fmt::format("rank {}", cause.rank) : "it");
}

}  // namespace adaptive_train
