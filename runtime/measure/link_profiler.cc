#include "runtime/measure/link_profiler.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "core/limits.h"
#include "core/seconds.h"
#include "runtime/comm/communicator.h"
#include "runtime/fatal_error.h"
#include "runtime/measure/congestion.h"
#include "runtime/measure/device_speed.h"
#include "runtime/measure/link_ping.h"
#include "runtime/measure/link_statistics.h"
#include "runtime/measure/link_stream.h"

namespace adaptive_train {
namespace {

/// A link with a larger spread is measured for longer. If the spread stays larger, it is in doubt.
constexpr double kSteady = 0.1;
constexpr double kWavering = 0.18;
/// The longer time exceeds the periods of most quotas and short bursts of other traffic.
constexpr StreamJudgement kJudgement{192 << 10, 0.065, 0.24, kSteady};
/// For pairs that may share something: long enough for each to get its share.
constexpr StreamJudgement kLongJudgement{192 << 10, 0.24, 0.48, kSteady};
/// Two measurements this close count as equal.
constexpr double kAgreement = 0.1;
/// Most links are equally fast both ways: a direction this far below the other is in doubt.
constexpr double kLopsided = 0.12;
/// Each burst exceeds a period of most quotas.
constexpr double kDeviceSeconds = 0.75;

constexpr std::chrono::milliseconds kPingDeadline = 10s;
constexpr std::chrono::milliseconds kStreamDeadline = 15s;
/// Covers everything that the slowest pair of a round may do.
constexpr std::chrono::milliseconds kRoundDeadline = kPingDeadline + 4 * kStreamDeadline;

/// A rank's measurement of the link from a peer to itself, as sent to rank 0.
struct Figures {
  double latency_s = 0;
  double bytes_per_second = 0;  // 0: not measured
  double spread = 0;
};

Deadline In(std::chrono::milliseconds time) { return RunningClock::now() + time; }

void WaitFor(Request request, std::chrono::milliseconds deadline) {
  const auto done = request.Wait(In(deadline));
  if (!done)
    throw FatalError(RankExit::kTransport, done.error().operation, done.error().peer,
                     done.error().cause);
}

/// One rank's part in all rounds.
class LinkProfiler {
 public:
  LinkProfiler(const MeasureOrder& order, Group& group)
      : order_(order), group_(group), from_(order.nodes.size()) {}

  void Run() {
    for (std::size_t i = 0; i < order_.rounds.size(); ++i) Round(i);
  }
  /// Index = rank; this rank's entry is unused.
  std::vector<Figures>& From() { return from_; }
  /// Processor seconds for each byte that this rank's streams have moved; 0: there were none.
  double TransferSecondsPerByte() const { return moved_ > 0 ? moving_cpu_s_ / moved_ : 0; }

  /// The result of a second look.
  struct SecondLook {
    int round = -1;   // the repeated round; -1: none
    LinkSlope alone;  // on rank 0
  };

  /// Measures one direction alone and, if it was held up, repeats its round. Rank 0 names the
  /// direction, others pass none. All ranks must call this after all rounds, when nothing else is
  /// measured.
  SecondLook LookAgain(const std::optional<RateInCompany>& suspect) {
    const std::size_t rounds = order_.rounds.size();
    SecondLook look;
    // Ranks are counted from 1 here, so that 0 means none.
    std::vector<double> order(2);
    if (suspect) order = {suspect->from + 1.0, suspect->to + 1.0};
    Vote(order, rounds);
    if (order[0] <= 0) return look;
    look.alone = Alone(static_cast<int>(order[0]) - 1, static_cast<int>(order[1]) - 1);
    std::vector<double> round(1);
    if (suspect && HeldUp(*suspect, look.alone.bytes_per_second, look.alone.spread))
      round = {suspect->round + 1.0};
    Vote(round, rounds);
    look.round = static_cast<int>(round[0]) - 1;
    if (look.round >= 0) RoundInStep(static_cast<std::size_t>(look.round));
    return look;
  }

 private:
  /// The partner of a rank in a round.
  static int PeerOf(const std::vector<RankPair>& round, int rank) {
    for (const auto& [a, b] : round) {
      if (a == rank) return b;
      if (b == rank) return a;
    }
    return -1;
  }

  std::string Name(const char* what, int peer) const {
    const auto name = [this](int rank) {
      return order_.nodes[static_cast<std::size_t>(rank)].name;
    };
    const int self = group_.Rank();
    return fmt::format("{} of {} - {}", what, name(std::min(self, peer)),
                       name(std::max(self, peer)));
  }

  /// Each operation of a rank gets its own tags; both ends of a pair count alike.
  LinkEnd End(int peer, std::size_t round, int operation) {
    const auto number =
        static_cast<std::uint64_t>(round) * 8 + static_cast<std::uint64_t>(operation);
    return {&group_.communicator().transport(), peer, kForeignTags | (number << 8)};
  }

  /// [rank]: whether the link it measured must be measured again. `seen` has each rank's rate and
  /// spread.
  static std::vector<bool> InDoubt(const std::vector<RankPair>& round,
                                   const std::vector<double>& seen) {
    std::vector<bool> doubts(seen.size() / 2);
    for (const auto& [a, b] : round) {
      for (const auto& [self, peer] : {RankPair(a, b), RankPair(b, a)}) {
        const auto own = 2 * static_cast<std::size_t>(self);
        const double other_way = seen[2 * static_cast<std::size_t>(peer)];
        doubts[own / 2] = seen[own + 1] > kWavering || seen[own] < (1 - kLopsided) * other_way;
      }
    }
    return doubts;
  }

  /// Logs a line for each round: this rank's link, and the time of the whole round.
  void Round(std::size_t index) {
    const auto began = std::chrono::steady_clock::now();
    const auto self = static_cast<std::size_t>(group_.Rank());
    const int peer = PeerOf(order_.rounds[index], group_.Rank());
    Figures seen;
    LinkSlope slope;
    if (peer >= 0) {
      seen.latency_s = Ping(peer, index);
      slope = InTurn(peer, index, 1, seen.latency_s, {true, true});
    }
    std::vector<double> seen_by_all(2 * order_.nodes.size());
    seen_by_all[2 * self] = slope.bytes_per_second;
    seen_by_all[2 * self + 1] = slope.spread;
    Vote(seen_by_all, index);
    const std::vector<bool> doubts = InDoubt(order_.rounds[index], seen_by_all);
    const bool again = doubts[self];
    if (peer >= 0) {
      const LinkSlope second =
          InTurn(peer, index, 3, seen.latency_s, {again, doubts[static_cast<std::size_t>(peer)]});
      if (again) slope = Reconciled(slope, second, kAgreement);
      seen.bytes_per_second = slope.bytes_per_second;
      seen.spread = slope.spread;
      from_[static_cast<std::size_t>(peer)] = seen;
    }
    // No rank may begin the next round while a pair of this one is measured again.
    if (std::find(doubts.begin(), doubts.end(), true) != doubts.end()) Vote(seen_by_all, index);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    fmt::print("round {} of {}: {} {:.4g} MB/s, {:.3g} us, spread {:.2f}{}; {:.3f} s\n", index + 1,
               order_.rounds.size(),
               peer < 0 ? "no peer" : "from " + order_.nodes[static_cast<std::size_t>(peer)].name,
               seen.bytes_per_second / 1e6, seen.latency_s * 1e6, seen.spread,
               again ? ", repeated" : "", took.count());
  }

  /// Measures the bandwidths of a round again, all pairs in the same direction at once.
  void RoundInStep(std::size_t index) {
    const std::size_t number = order_.rounds.size() + 1;
    const int self = group_.Rank(), peer = PeerOf(order_.rounds[index], self);
    std::vector<double> done(1);
    for (const bool upwards : {true, false}) {
      if (peer >= 0) {
        const bool sends = (self < peer) == upwards;
        Figures& seen = from_[static_cast<std::size_t>(peer)];
        const LinkSlope slope =
            Stream(peer, End(peer, number, upwards ? 0 : 1), sends, seen.latency_s, kLongJudgement);
        if (!sends) seen.bytes_per_second = slope.bytes_per_second, seen.spread = slope.spread;
      }
      Vote(done, index);
    }
  }

  /// All ranks get the receiver's result.
  LinkSlope Alone(int from, int to) {
    const std::size_t rounds = order_.rounds.size();
    const int self = group_.Rank();
    std::vector<double> seen(2);
    if (self == from || self == to) {
      const int peer = self == from ? to : from;
      const double latency = from_[static_cast<std::size_t>(peer)].latency_s;
      const LinkSlope slope = Stream(peer, End(peer, rounds, 0), self == from, latency);
      if (self == to) seen = {slope.bytes_per_second, slope.spread};
    }
    Vote(seen, rounds);
    return {seen[0], seen[1]};
  }

  /// Sums the ranks' entries, so that all know all, and keeps the rounds in step.
  void Vote(std::vector<double>& votes, std::size_t index) {
    const auto done =
        group_.AllReduce(Purpose::kStatistic, std::span<double>(votes)).Wait(In(kRoundDeadline));
    if (!done)
      throw FatalError(
          RankExit::kTransport,
          fmt::format("agreement after round {} of {}", index + 1, order_.rounds.size()),
          done.error().peer, done.error().cause);
  }

  double Ping(int peer, std::size_t index) {
    const auto ping = std::make_shared<LinkPing>(Name("latency", peer), End(peer, index, 0),
                                                 group_.Rank() < peer);
    WaitFor(group_.Launch(ping), kPingDeadline);
    return ping->Latency();
  }

  /// The directions of a link to measure, seen from this end.
  struct Directions {
    bool incoming, outgoing;
  };

  /// Measures one direction after the other, starting with that into the smaller rank. Uses two
  /// operation numbers. Returns the result of the incoming one.
  LinkSlope InTurn(int peer, std::size_t index, int operation, double latency,
                   Directions directions) {
    LinkSlope seen;
    const bool first = group_.Rank() < peer;
    for (const bool incoming : {first, !first}) {
      const LinkEnd end = End(peer, index, operation++);
      if (!(incoming ? directions.incoming : directions.outgoing)) continue;
      const LinkSlope slope = Stream(peer, end, !incoming, latency);
      if (incoming) seen = slope;
    }
    return seen;
  }

  /// Returns the receiver's result.
  LinkSlope Stream(int peer, const LinkEnd& end, bool sends, double latency,
                   const StreamJudgement& judgement = kJudgement) {
    const auto stream =
        std::make_shared<LinkStream>(Name("bandwidth", peer), end, sends, latency, judgement);
    const double before_s = group_.communicator().CpuSeconds();
    WaitFor(group_.Launch(stream), kStreamDeadline);
    moving_cpu_s_ += group_.communicator().CpuSeconds() - before_s;
    moved_ += stream->Moved();
    return sends ? LinkSlope{} : stream->Received();
  }

  const MeasureOrder& order_;
  Group& group_;
  std::vector<Figures> from_;
  double moving_cpu_s_ = 0, moved_ = 0;  // of all streams: processor seconds, bytes
};

struct NodeSpeed {
  DeviceSpeed device;
  double transfer_s_per_byte = 0;
};

/// One rank's measurements: its incoming links, then its node.
struct Row {
  std::vector<Figures> from;
  NodeSpeed node;
};

std::vector<Row> Gather(Group& group, const Row& own) {
  const std::size_t size = own.from.size();
  const auto flat = [](auto& values) { return std::as_writable_bytes(std::span(values)); };
  std::vector<Row> rows(static_cast<std::size_t>(group.Rank() == 0 ? size : 0));
  Row sent = own;
  std::vector<Request> requests;
  const auto pass = [&](Row& row, auto transfer) {
    requests.push_back(transfer(flat(row.from)));
    requests.push_back(transfer(std::as_writable_bytes(std::span(&row.node, 1))));
  };
  if (group.Rank() != 0) {
    pass(sent, [&](auto bytes) { return group.Send(0, Purpose::kStatistic, bytes); });
  } else {
    rows[0] = own;
    for (std::size_t rank = 1; rank < size; ++rank) {
      rows[rank].from.resize(size);
      pass(rows[rank], [&](auto bytes) {
        return group.Receive(static_cast<int>(rank), Purpose::kStatistic, bytes);
      });
    }
  }
  for (Request& request : requests) WaitFor(std::move(request), kRoundDeadline);
  return rows;
}

Profile ProfileFrom(const MeasureOrder& order, const std::vector<Row>& rows) {
  const double now = EpochSecondsNow();
  Profile profile;
  for (std::size_t to = 0; to < rows.size(); ++to) {
    const MeasuredNode& node = order.nodes[to];
    for (std::size_t from = 0; from < rows.size(); ++from) {
      const Figures& f = rows[to].from[from];
      if (f.bytes_per_second <= 0) continue;
      profile.links.push_back({order.nodes[from].name, node.name, f.latency_s, f.bytes_per_second,
                               Evidence{1, f.spread, now}});
    }
    const auto& [d, transfer_s_per_byte] = rows[to].node;
    if (d.product_flops <= 0) continue;
    profile.links.push_back(
        {node.name, node.name, d.handover_s, d.bytes_per_second, Evidence{1, 0, now}});
    profile.devices.push_back({node.name, node.device_kind, d.product_flops, d.bytes_per_second,
                               Evidence{1, d.product_spread, now}, transfer_s_per_byte});
  }
  return profile;
}

/// Every measured direction.
std::vector<RateInCompany> RatesInCompany(const MeasureOrder& order, const std::vector<Row>& rows) {
  std::vector<RateInCompany> rates;
  for (std::size_t i = 0; i < order.rounds.size(); ++i) {
    for (const auto& [a, b] : order.rounds[i]) {
      for (const auto& [from, to] : {RankPair(a, b), RankPair(b, a)}) {
        const Figures& seen =
            rows[static_cast<std::size_t>(to)].from[static_cast<std::size_t>(from)];
        rates.push_back({from, to, seen.bytes_per_second, seen.spread, static_cast<int>(i),
                         static_cast<int>(order.rounds[i].size())});
      }
    }
  }
  return rates;
}

/// Describes the second measurement of a round that was held up.
std::string Words(const MeasureOrder& order, const RateInCompany& before, const LinkSlope& alone,
                  double again) {
  const auto name = [&](int rank) { return order.nodes[static_cast<std::size_t>(rank)].name; };
  RateInCompany second = before;
  second.bytes_per_second = again;
  const std::string rates = fmt::format(
      "{} to {} had {:.4g} MB/s while {} pairs were measured at once, {:.4g} MB/s alone and {:.4g} "
      "MB/s among the {} again",
      name(before.from), name(before.to), before.bytes_per_second / 1e6, before.pairs,
      alone.bytes_per_second / 1e6, again / 1e6, before.pairs);
  return HeldUp(second, alone.bytes_per_second, alone.spread)
             ? "links share something on their way: " + rates + "; the last is kept"
             : "something else was on the links: " + rates + ", which is kept";
}

}  // namespace

NodeFigures MeasureNodes(const MeasureOrder& order, Group& group) {
  Row own;
  LinkProfiler links(order, group);
  links.Run();
  const MeasuredNode& self = order.nodes[static_cast<std::size_t>(group.Rank())];
  if (self.device) {
    const auto began = std::chrono::steady_clock::now();
    own.node.device = MeasureDevice(self.threads, kDeviceSeconds);
    fmt::print("device: {:.3f} s\n",
               std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
  }
  const auto gather = [&] {
    own.from = links.From();
    own.node.transfer_s_per_byte = links.TransferSecondsPerByte();
    return Gather(group, own);
  };
  std::vector<Row> rows = gather();
  std::optional<RateInCompany> suspect;
  if (group.Rank() == 0) suspect = WorthMeasuringAlone(RatesInCompany(order, rows));
  const LinkProfiler::SecondLook look = links.LookAgain(suspect);
  if (look.round >= 0) rows = gather();
  NodeFigures figures;
  if (group.Rank() != 0) return figures;
  figures.profile = ProfileFrom(order, rows);
  if (look.round >= 0)
    figures.congestion = Words(order, *suspect, look.alone,
                               rows[static_cast<std::size_t>(suspect->to)]
                                   .from[static_cast<std::size_t>(suspect->from)]
                                   .bytes_per_second);
  return figures;
}

}  // namespace adaptive_train
