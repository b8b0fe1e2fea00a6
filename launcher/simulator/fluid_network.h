// Messages as fluids that share what they flow through, max-min fair.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "launcher/simulator/event_loop.h"

namespace adaptive_train {

/// Every flow takes a route, a set of resources of limited capacity. At any time the rates are
/// max-min fair: no flow can have more without taking from one that has no more than it
/// (progressive filling: Bertsekas and Gallager, Data Networks, 1992, section 6.5.2). Flows of one
/// route have equal rates, so that a route, not a flow, is what rates are computed for, and only
/// for routes that a change can reach. One thread: the loop's.
class FluidNetwork {
 public:
  using Done = std::function<void()>;

  /// Takes the loop's WhenSettling; the loop must outlive it.
  explicit FluidNetwork(EventLoop& loop);

  /// Bytes per second, not negative. Infinity never limits anything; through 0 nothing ever comes.
  int AddResource(double capacity);
  /// Through all of `resources`; one that is named twice is passed twice.
  int AddRoute(const std::vector<int>& resources);
  /// Now begins a flow of `bytes`; `done` is called when the last of them has arrived, never from
  /// inside this call.
  void Start(int route, double bytes, Done done);

 private:
  struct Flow {
    double end;  // in the route's `served`
    std::uint64_t order;
    Done done;
  };
  struct Resource {
    double capacity = 0;
    std::vector<int> routes;  // with flows
    double left = 0;          // while filling: not given away yet
    double waiting = 0;       // while filling: flows whose rate is open
    std::uint64_t seen = 0;
  };
  struct Route {
    std::vector<int> resources;  // those that can limit
    std::vector<Flow> flows;     // a heap, the first to end in front
    double served = 0;           // bytes each flow has had that was there all the time
    double rate = 0;             // bytes per second of each flow
    double since = 0;            // when `served` was true
    std::uint64_t changes = 0;   // of the rate
    std::uint64_t seen = 0;
    bool open = false;  // while filling: the rate is not known yet
  };
  struct End {
    double time;
    int route;
    std::uint64_t changes;  // of the route when this was true
  };
  struct Share {
    double rate;
    int resource;
  };

  static bool LaterFlow(const Flow& a, const Flow& b) {
    return a.end != b.end ? a.end > b.end : a.order > b.order;
  }
  static bool LaterEnd(const End& a, const End& b) { return a.time > b.time; }
  static bool LargerShare(const Share& a, const Share& b) {
    return a.rate != b.rate ? a.rate > b.rate : a.resource > b.resource;
  }

  Route& At(int route) { return routes_[static_cast<std::size_t>(route)]; }
  Resource& Of(int resource) { return resources_[static_cast<std::size_t>(resource)]; }
  void Settle();
  void Reach();
  void Fill();
  void GiveShare(const Share& share, double rate);
  void Serve(Route& route);
  void ForeseeEnd(int route);
  void Wake();
  void EndFlows(int route, std::vector<Flow>& ended);
  void Leave(int route);

  EventLoop& loop_;
  std::vector<Resource> resources_;
  std::vector<Route> routes_;
  std::uint64_t started_ = 0;
  std::vector<End> ends_;               // a heap; out of date where the route's changes are others
  double wake_at_;                      // an event is asked for then
  std::vector<int> changed_;            // routes whose number of flows has changed
  std::vector<int> reached_;            // routes, and
  std::vector<int> reached_resources_;  // resources that the changes can reach
  std::uint64_t settled_ = 0;
  std::vector<Share> shares_;  // a heap
};

}  // namespace adaptive_train
