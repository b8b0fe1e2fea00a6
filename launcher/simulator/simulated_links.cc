#include "launcher/simulator/simulated_links.h"

#include <algorithm>

namespace adaptive_train {

SimulatedLinks::SimulatedLinks(EventLoop& loop, const LinkTable& table, const NodeCards& cards,
                               const Chance& chance)
    : loop_(loop), table_(table), chance_(chance), network_(loop) {
  MakeCards(cards);
}

LinkSpeed SimulatedLinks::SpeedOf(int from, int to) const {
  LinkSpeed speed = table_.At(from, to);
  if (chance_.BandwidthVaries()) speed.bytes_per_second *= chance_.BandwidthFactor(from, to);
  return speed;
}

void SimulatedLinks::MakeCards(const NodeCards& cards) {
  const int nodes = static_cast<int>(table_.Nodes());
  std::vector<double> egress = cards.egress, ingress = cards.ingress;
  const bool measured_out = !egress.empty(), measured_in = !ingress.empty();
  egress.resize(table_.Nodes());
  ingress.resize(table_.Nodes());
  for (int from = 0; from < nodes && !(measured_out && measured_in); ++from) {
    for (int to = 0; to < nodes; ++to) {
      if (from == to) continue;
      const double speed = SpeedOf(from, to).bytes_per_second;
      double& out = egress[static_cast<std::size_t>(from)];
      double& in = ingress[static_cast<std::size_t>(to)];
      if (!measured_out) out = std::max(out, speed);
      if (!measured_in) in = std::max(in, speed);
    }
  }
  for (const double speed : egress) egress_.push_back(network_.AddResource(speed));
  for (const double speed : ingress) ingress_.push_back(network_.AddResource(speed));
}

void SimulatedLinks::AddProcessor(const Place& place, std::vector<int>& resources) {
  if (place.transfer_s_per_byte <= 0) return;
  const auto [at, fresh] = processors_.try_emplace(place.device, -1);
  if (fresh) at->second = network_.AddResource(1 / place.transfer_s_per_byte);
  resources.push_back(at->second);
}

std::vector<int> SimulatedLinks::ResourcesOf(const Place& from, const Place& to) {
  const bool inside = from.node == to.node;
  auto& links = inside ? between_devices_ : between_nodes_;
  const auto key = inside ? std::pair(from.device, to.device) : std::pair(from.node, to.node);
  const auto [link, fresh] = links.try_emplace(key, -1);
  if (fresh) link->second = network_.AddResource(SpeedOf(from.node, to.node).bytes_per_second);
  std::vector<int> resources{link->second};
  if (!inside) {
    resources.push_back(egress_[static_cast<std::size_t>(from.node)]);
    resources.push_back(ingress_[static_cast<std::size_t>(to.node)]);
  }
  AddProcessor(from, resources);
  AddProcessor(to, resources);
  return resources;
}

int SimulatedLinks::RouteOf(const Place& from, const Place& to) {
  const auto [route, fresh] = routes_.try_emplace({from.device, to.device}, -1);
  if (fresh) route->second = network_.AddRoute(ResourcesOf(from, to));
  return route->second;
}

void SimulatedLinks::Note(const Place& from, const Place& to, double bytes) {
  LinkUse& use = uses_[{from.node, to.node}];
  use.from = from.node;
  use.to = to.node;
  use.bytes += bytes;
  use.bytes_per_second = table_.At(from.node, to.node).bytes_per_second;
  if (moved_) moved_(from.device, to.device, bytes);
}

void SimulatedLinks::Send(const Place& from, const Place& to, double bytes, Done done) {
  const int route = RouteOf(from, to);
  const double wait = table_.At(from.node, to.node).latency_s + chance_.LossDelay(messages_++);
  loop_.After(wait, [this, from, to, route, bytes, done = std::move(done)]() mutable {
    network_.Start(route, bytes, [this, from, to, bytes, done = std::move(done)] {
      Note(from, to, bytes);
      done();
    });
  });
}

void SimulatedLinks::SendAround(std::span<const Place> ring, int phases, double bytes, Done done) {
  std::vector<int> resources;
  double latency = 0;
  for (std::size_t i = 0; i < ring.size(); ++i) {
    const Place &from = ring[i], &to = ring[(i + 1) % ring.size()];
    const std::vector<int> link = ResourcesOf(from, to);
    resources.insert(resources.end(), link.begin(), link.end());
    latency = std::max(latency, table_.At(from.node, to.node).latency_s);
  }
  const auto [known, fresh] = rings_.try_emplace(resources, -1);
  if (fresh) known->second = network_.AddRoute(resources);
  double wait = phases * latency;
  for (int phase = 0; phase < phases; ++phase)
    wait += chance_.LossDelay(messages_++, static_cast<int>(ring.size()) - 1);
  loop_.After(wait, [this, ring, route = known->second, all = phases * bytes,
                     done = std::move(done)]() mutable {
    network_.Start(route, all, [this, ring, all, done = std::move(done)] {
      for (std::size_t i = 0; i < ring.size(); ++i) Note(ring[i], ring[(i + 1) % ring.size()], all);
      done();
    });
  });
}

std::vector<LinkUse> SimulatedLinks::Uses() const {
  std::vector<LinkUse> uses;
  for (const auto& [pair, use] : uses_) uses.push_back(use);
  return uses;
}

}  // namespace adaptive_train
