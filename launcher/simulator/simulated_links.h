// The links of a problem as routes of a fluid network: what a message from here to there shares.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "launcher/planner/problem.h"
#include "launcher/simulator/chance.h"
#include "launcher/simulator/fluid_network.h"

namespace adaptive_train {

/// Where a message begins or ends.
struct Place {
  int device = 0;
  int node = 0;
  double transfer_s_per_byte = 0;  // of the device's kind
};

/// Bytes that went from one node to another, or between devices of one (from == to).
struct LinkUse {
  int from = 0, to = 0;
  double bytes = 0;
  double bytes_per_second = 0;  // the link's speed
  double Share(double seconds) const { return bytes / (bytes_per_second * seconds); }
};

/// Capacities of the nodes' network cards, bytes per second; index = node. Empty: a card is as fast
/// as the fastest link of its node in that direction.
struct NodeCards {
  std::vector<double> egress, ingress;
};

/// Between two nodes a message takes the sender's card, the pair's own limit and the receiver's
/// card; inside a node the two devices' own link, which others do not share. Where a device's own
/// processor moves its messages, all of them share that too. One thread: the loop's. Everything
/// given must outlive it.
class SimulatedLinks {
 public:
  using Done = FluidNetwork::Done;
  /// Called with each message that has arrived: sending device, receiving device, bytes.
  using OnMoved = std::function<void(int from, int to, double bytes)>;

  SimulatedLinks(EventLoop& loop, const LinkTable& table, const NodeCards& cards,
                 const Chance& chance);

  /// A message: its latency, what losses cost, then its bytes as a flow.
  void Send(const Place& from, const Place& to, double bytes, Done done);
  /// The `phases` messages of `bytes` each that every member of a ring sends to the next one, as a
  /// single flow over all links of the ring: every phase takes the highest latency of them and the
  /// rate of the slowest, which is what a ring settles to. `ring` stays where it is until then.
  void SendAround(std::span<const Place> ring, int phases, double bytes, Done done);

  void WhenMoved(OnMoved moved) { moved_ = std::move(moved); }
  /// What was used so far, by (from, to).
  std::vector<LinkUse> Uses() const;

 private:
  LinkSpeed SpeedOf(int from, int to) const;
  /// What a message from one to the other takes.
  std::vector<int> ResourcesOf(const Place& from, const Place& to);
  int RouteOf(const Place& from, const Place& to);
  /// The device's processor, if that moves its messages.
  void AddProcessor(const Place& place, std::vector<int>& resources);
  void MakeCards(const NodeCards& cards);
  void Note(const Place& from, const Place& to, double bytes);

  EventLoop& loop_;
  const LinkTable& table_;
  const Chance& chance_;
  FluidNetwork network_;
  std::vector<int> egress_, ingress_;                                   // resources, index = node
  std::map<std::pair<int, int>, int> between_nodes_, between_devices_;  // resources
  std::map<int, int> processors_;                                       // resources, by device
  std::map<std::pair<int, int>, int> routes_;                           // by devices
  std::map<std::vector<int>, int> rings_;                               // resources -> route
  std::map<std::pair<int, int>, LinkUse> uses_;
  std::uint64_t messages_ = 0;
  OnMoved moved_;
};

}  // namespace adaptive_train
