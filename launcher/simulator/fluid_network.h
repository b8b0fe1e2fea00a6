// Messages as fluid flows that share resources max-min fairly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "launcher/simulator/event_loop.h"

namespace adaptive_train {

/// Every flow takes a route, a set of resources of limited capacity. Rates are always max-min fair:
/// a flow can gain only at the cost of one that has no more (progressive filling: Bertsekas and
/// Gallager, Data Networks, 1992, section 6.5.2). Flows of one route have equal rates, so rates are
/// computed per route, and only for routes that a change can affect. One thread: the loop's.
class FluidNetwork {
 public:
  using Done = std::function<void()>;

  /// Sets the loop's WhenSettling; the loop must outlive this object.
  explicit FluidNetwork(EventLoop& loop);

  /// Bytes per second, not negative. Infinity never limits; with 0 nothing ever arrives.
  int AddResource(double capacity);
  /// A route through all of `resources`; a repeated resource counts twice.
  int AddRoute(const std::vector<int>& resources);
  /// Starts a flow of `bytes` now. Calls `done` when all have arrived, never from inside this call.
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
    double left = 0;          // while filling: capacity not yet assigned
    double waiting = 0;       // while filling: flows whose rate is open
    std::uint64_t seen = 0;
  };
  struct Route {
    std::vector<int> resources;  // those that can limit
    std::vector<Flow> flows;     // a heap, the first to end in front
    double served = 0;           // bytes that each flow got since the route began
    double rate = 0;             // bytes per second of each flow
    double since = 0;            // when `served` was computed
    std::uint64_t changes = 0;   // of the rate
    std::uint64_t seen = 0;
    bool open = false;  // while filling: the rate is not known yet
  };
  struct End {
    double time;
    int route;
    std::uint64_t changes;  // the route's value of `changes` for this entry
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
  std::vector<End> ends_;               // a heap; an entry is stale if the route's `changes` differ
  double wake_at_;                      // time of the next requested event
  std::vector<int> changed_;            // routes whose number of flows has changed
  std::vector<int> reached_;            // routes, and
  std::vector<int> reached_resources_;  // resources that the changes can reach
  std::uint64_t settled_ = 0;
  std::vector<Share> shares_;  // a heap
};

}  // namespace adaptive_train
