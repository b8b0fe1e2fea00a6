#include "launcher/simulator/fluid_network.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace adaptive_train {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
/// A smaller rest of a flow counts as rounding error: the flow has ended.
constexpr double kSameTime = 1e-12;  // seconds
constexpr double kRounding = 1e-12;  // of the bytes that the route has served

}  // namespace

FluidNetwork::FluidNetwork(EventLoop& loop) : loop_(loop), wake_at_(kNever) {
  loop_.WhenSettling([this] { Settle(); });
}

int FluidNetwork::AddResource(double capacity) {
  Resource resource;
  resource.capacity = capacity;
  resources_.push_back(std::move(resource));
  return static_cast<int>(resources_.size()) - 1;
}

int FluidNetwork::AddRoute(const std::vector<int>& resources) {
  Route route;
  for (const int resource : resources)
    if (std::isfinite(Of(resource).capacity)) route.resources.push_back(resource);
  routes_.push_back(std::move(route));
  return static_cast<int>(routes_.size()) - 1;
}

void FluidNetwork::Start(int index, double bytes, Done done) {
  Route& route = At(index);
  if (route.resources.empty() || bytes <= 0) return loop_.After(0, std::move(done));
  if (route.flows.empty()) {
    route.served = 0;
    route.since = loop_.Now();
    for (const int resource : route.resources) Of(resource).routes.push_back(index);
  }
  Serve(route);
  route.flows.push_back({route.served + bytes, started_++, std::move(done)});
  std::push_heap(route.flows.begin(), route.flows.end(), LaterFlow);
  changed_.push_back(index);
}

void FluidNetwork::Serve(Route& route) {
  route.served += route.rate * (loop_.Now() - route.since);
  route.since = loop_.Now();
}

void FluidNetwork::Settle() {
  if (!changed_.empty()) {
    Reach();
    for (const int route : reached_) Serve(At(route));
    Fill();
    for (const int route : reached_) ForeseeEnd(route);
    changed_.clear();
  }
  while (!ends_.empty() && At(ends_.front().route).changes != ends_.front().changes) {
    std::pop_heap(ends_.begin(), ends_.end(), LaterEnd);
    ends_.pop_back();
  }
  if (ends_.empty() || ends_.front().time >= wake_at_) return;
  wake_at_ = ends_.front().time;
  loop_.At(wake_at_, [this, asked = wake_at_] {
    if (asked == wake_at_) Wake();  // otherwise an earlier wake-up was requested since
  });
}

/// Finds routes and resources connected to the changed ones; all other rates stay.
void FluidNetwork::Reach() {
  ++settled_;
  reached_.clear();
  reached_resources_.clear();
  auto reach = [this](int index) {
    Route& route = At(index);
    if (route.seen == settled_) return;
    route.seen = settled_;
    reached_.push_back(index);
  };
  for (const int route : changed_) reach(route);
  for (std::size_t i = 0; i < reached_.size(); ++i) {
    for (const int r : At(reached_[i]).resources) {
      Resource& resource = Of(r);
      if (resource.seen == settled_) continue;
      resource.seen = settled_;
      reached_resources_.push_back(r);
      for (const int route : resource.routes) reach(route);
    }
  }
}

void FluidNetwork::Fill() {
  for (const int r : reached_resources_) {
    Of(r).left = Of(r).capacity;
    Of(r).waiting = 0;
  }
  for (const int index : reached_) {
    Route& route = At(index);
    route.open = !route.flows.empty();
    route.rate = 0;
    for (const int r : route.resources) Of(r).waiting += static_cast<double>(route.flows.size());
  }
  shares_.clear();
  for (const int r : reached_resources_)
    if (Of(r).waiting > 0) shares_.push_back({Of(r).left / Of(r).waiting, r});
  std::make_heap(shares_.begin(), shares_.end(), LargerShare);
  double level = 0;  // shares only grow; rounding must not shrink one
  while (!shares_.empty()) {
    std::pop_heap(shares_.begin(), shares_.end(), LargerShare);
    const Share share = shares_.back();
    shares_.pop_back();
    const Resource& resource = Of(share.resource);
    if (resource.waiting <= 0) continue;
    const double now = std::max(level, resource.left / resource.waiting);
    if (now > share.rate && !shares_.empty() && now > shares_.front().rate) {
      shares_.push_back({now, share.resource});  // others took less than their share of it
      std::push_heap(shares_.begin(), shares_.end(), LargerShare);
      continue;
    }
    level = now;
    GiveShare(share, now);
  }
}

/// The resource is full: the flows of its open routes get `rate` each.
void FluidNetwork::GiveShare(const Share& share, double rate) {
  for (const int index : Of(share.resource).routes) {
    Route& route = At(index);
    if (!route.open) continue;
    route.open = false;
    route.rate = rate;
    const auto flows = static_cast<double>(route.flows.size());
    for (const int r : route.resources) {
      Of(r).left = std::max(0.0, Of(r).left - rate * flows);
      Of(r).waiting -= flows;
    }
  }
}

void FluidNetwork::ForeseeEnd(int index) {
  Route& route = At(index);
  ++route.changes;
  if (route.flows.empty() || route.rate <= 0) return;
  const double left = std::max(0.0, route.flows.front().end - route.served);
  ends_.push_back({loop_.Now() + left / route.rate, index, route.changes});
  std::push_heap(ends_.begin(), ends_.end(), LaterEnd);
}

void FluidNetwork::Wake() {
  wake_at_ = kNever;
  std::vector<Flow> ended;
  while (!ends_.empty() && ends_.front().time <= loop_.Now() + kSameTime) {
    const End end = ends_.front();
    std::pop_heap(ends_.begin(), ends_.end(), LaterEnd);
    ends_.pop_back();
    if (At(end.route).changes == end.changes) EndFlows(end.route, ended);
  }
  for (Flow& flow : ended) flow.done();
}

void FluidNetwork::EndFlows(int index, std::vector<Flow>& ended) {
  Route& route = At(index);
  Serve(route);
  // The first flow ends as predicted, whatever rounding says.
  route.served = std::max(route.served, route.flows.front().end);
  const double until = route.served + route.rate * kSameTime + route.served * kRounding;
  while (!route.flows.empty() && route.flows.front().end <= until) {
    std::pop_heap(route.flows.begin(), route.flows.end(), LaterFlow);
    ended.push_back(std::move(route.flows.back()));
    route.flows.pop_back();
  }
  changed_.push_back(index);
  if (route.flows.empty()) Leave(index);
}

void FluidNetwork::Leave(int index) {
  for (const int r : At(index).resources) {
    std::vector<int>& routes = Of(r).routes;
    const auto at = std::find(routes.begin(), routes.end(), index);
    *at = routes.back();
    routes.pop_back();
  }
  At(index).rate = 0;
}

}  // namespace adaptive_train
