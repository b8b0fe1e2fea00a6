#include "launcher/simulator/stage_exchange.h"

#include <algorithm>
#include <cmath>

namespace adaptive_train {
namespace {

constexpr double kAgreementBytes = 10 * sizeof(double);  // training_loop.cc
constexpr double kMostMessages = 200'000;  // of a step; more are not simulated one by one
constexpr double kMostCoarseBuckets = 256;
constexpr double kRounding = 1e-9;  // of the sums of bytes

}  // namespace

StageExchange::StageExchange(const EventLoop& loop, SimulatedLinks& links,
                             const PlanProblem& problem, const Layout& layout, int stage,
                             const SimulationOptions& options, std::span<const Place> members,
                             Events events)
    : loop_(loop),
      links_(links),
      problem_(problem),
      layout_(layout),
      first_layer_(layout.LayersOf(stage).front()),
      events_(std::move(events)),
      order_(layout.rings[static_cast<std::size_t>(stage)]),
      replicas_(members.size()) {
  for (std::size_t i = 0; i < order_.size(); ++i) {
    const auto replica = static_cast<std::size_t>(order_[i]);
    places_.push_back(members[replica]);
    replicas_[replica].position = static_cast<int>(i);
  }
  double total = 0;
  for (const int l : layout.LayersOf(stage)) total += LayerBytes(l);
  double bucket = options.bucket_bytes * layout.tensor;
  const double messages =
      layout.Stages() * std::ceil(total / bucket) * 2 * layout.data * (layout.data - 1);
  const bool coarse = layout.data > options.long_ring || messages > kMostMessages;
  if (coarse) bucket = std::max(bucket, total / kMostCoarseBuckets);
  for (double end = 0; end < total * (1 - kRounding);)
    bucket_ends_.push_back(end = std::min(total, end + bucket));
  MakeBuckets(bucket, layout.shard >= 1 ? RingPart::kHalf : RingPart::kAll, coarse);
  agreement_ = MakeRing(kAgreementBytes, RingPart::kAll, coarse,
                        [this](int replica) { events_.agreed(replica); });
}

double StageExchange::LayerBytes(int layer) const {
  const ProblemLayer& l = problem_.layers[static_cast<std::size_t>(layer)];
  return layout_.compressed[static_cast<std::size_t>(layer)] ? l.compressed_bytes
                                                             : l.gradient_bytes;
}

void StageExchange::MakeBuckets(double bucket, RingPart part, bool coarse) {
  double begin = 0;
  for (const double end : bucket_ends_) {
    const double bytes = std::min(bucket, end - begin);
    begin = end;
    sums_.push_back(MakeRing(bytes, part, coarse, [this](int replica) {
      Count(replica, replicas_[static_cast<std::size_t>(replica)].summed, events_.summed);
    }));
    if (part == RingPart::kAll) continue;
    gathers_.push_back(MakeRing(bytes, part, coarse, [this](int replica) {
      Count(replica, replicas_[static_cast<std::size_t>(replica)].gathered, events_.gathered);
    }));
  }
}

std::unique_ptr<RingExchange> StageExchange::MakeRing(double bytes, RingPart part, bool coarse,
                                                      std::function<void(int)> done) {
  return std::make_unique<RingExchange>(links_, places_, bytes, part, coarse,
                                        [this, done = std::move(done)](int position) {
                                          done(order_[static_cast<std::size_t>(position)]);
                                        });
}

void StageExchange::Count(int replica, std::size_t& count, const std::function<void(int)>& all) {
  if (++count == bucket_ends_.size()) all(replica);
}

void StageExchange::LayerDone(int index, int layer) {
  Replica& replica = replicas_[static_cast<std::size_t>(index)];
  replica.final_bytes += LayerBytes(layer);
  if (problem_.exchange_after && layer != first_layer_) return;
  const double final_bytes = replica.final_bytes * (1 + kRounding);
  if (replica.started == 0) replica.began = loop_.Now();
  while (replica.started < sums_.size() && bucket_ends_[replica.started] <= final_bytes)
    sums_[replica.started++]->Ready(replica.position);
  if (layer == first_layer_ && sums_.empty()) events_.summed(index);
}

void StageExchange::Agree(int replica) {
  agreement_->Ready(replicas_[static_cast<std::size_t>(replica)].position);
}

void StageExchange::Gather(int replica) {
  if (gathers_.empty()) return events_.gathered(replica);
  for (const auto& ring : gathers_)
    ring->Ready(replicas_[static_cast<std::size_t>(replica)].position);
}

}  // namespace adaptive_train
