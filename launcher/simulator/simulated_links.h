// The links of a problem as routes of a fluid network: what a message shares with others.
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

/// One end of a message.
struct Place {
  int device = 0;
  int node = 0;
  double transfer_s_per_byte = 0;  // of the device's kind
};

/// Bytes sent from one node to another, or between devices of one node (from == to).
struct LinkUse {
  int from = 0, to = 0;
  double bytes = 0;
  double bytes_per_second = 0;  // the link's speed
  double Share(double seconds) const { return bytes / (bytes_per_second * seconds); }
};

/// Bytes per second of the nodes' network cards; index = node. Empty: a card is as fast as the
/// fastest link of its node in that direction.
struct NodeCards {
  std::vector<double> egress, ingress;
};

/// A message between two nodes uses the sender's card, the pair's own limit and the receiver's
/// card. Inside a node it uses the two devices' own link, which others do not share. All messages
/// of a device whose own processor moves them share that too. One thread: the loop's. All arguments
/// must outlive the object.
class SimulatedLinks {
 public:
  using Done = FluidNetwork::Done;
  /// Called for each message that has arrived: sending device, receiving device, bytes.
  using OnMoved = std::function<void(int from, int to, double bytes)>;

  SimulatedLinks(EventLoop& loop, const LinkTable& table, const NodeCards& cards,
                 const Chance& chance);

  /// Sends a message: its latency, the cost of losses, then its bytes as a flow.
  void Send(const Place& from, const Place& to, double bytes, Done done);
  /// The `phases` messages of `bytes` each that every member of a ring sends to the next one, as a
  /// single flow over all links of the ring. Every phase takes the highest latency and the lowest
  /// rate of the links, to which a ring settles. `ring` must outlive the flow.
  void SendAround(std::span<const Place> ring, int phases, double bytes, Done done);

  void WhenMoved(OnMoved moved) { moved_ = std::move(moved); }
  /// Usage so far, by (from, to).
  std::vector<LinkUse> Uses() const;

 private:
  LinkSpeed SpeedOf(int from, int to) const;
  /// The resources that a message between the two uses.
  std::vector<int> ResourcesOf(const Place& from, const Place& to);
  int RouteOf(const Place& from, const Place& to);
  /// Adds the device's processor if that moves its messages.
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
