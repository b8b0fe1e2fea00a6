#include "launcher/simulator/stage_exchange.h"

#include <algorithm>
#include <cmath>

namespace adaptive_train {
namespace {

constexpr double kAgreementBytes = 10 * sizeof(double);  // training_loop.cc
constexpr double kMostMessages = 200'000;   // of a step; more are not simulated one by one
constexpr double kMostCoarseBuckets = 256;  // besides one of each layer

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
  const std::vector<int> layers = layout.LayersOf(stage);
  double bucket = options.bucket_bytes * layout.tensor;
  CutIntoBuckets(layers, bucket);
  const double messages =
      layout.Stages() * static_cast<double>(buckets_.size()) * 2 * layout.data * (layout.data - 1);
  const bool coarse = layout.data > options.long_ring || messages > kMostMessages;
  if (coarse) {
    double total = 0;
    for (const int l : layers) total += problem.layers[static_cast<std::size_t>(l)].gradient_bytes;
    CutIntoBuckets(layers, std::max(bucket, total / kMostCoarseBuckets));
  }
  MakeRings(layout.shard >= 1 ? RingPart::kHalf : RingPart::kAll, coarse);
  agreement_ = MakeRing(kAgreementBytes, RingPart::kAll, coarse,
                        [this](int replica) { events_.agreed(replica); });
}

double StageExchange::LayerBytes(int layer) const {
  const ProblemLayer& l = problem_.layers[static_cast<std::size_t>(layer)];
  return layout_.compressed[static_cast<std::size_t>(layer)] ? l.compressed_bytes
                                                             : l.gradient_bytes;
}

/// No bucket has two layers, and those of a layer are alike (runtime/exchange/gradient_buckets.h).
void StageExchange::CutIntoBuckets(const std::vector<int>& layers, double most_bytes) {
  buckets_.clear();
  for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) {
    const double whole = problem_.layers[static_cast<std::size_t>(*layer)].gradient_bytes;
    const auto count = static_cast<std::size_t>(std::ceil(whole / most_bytes));
    buckets_.insert(buckets_.end(), count,
                    {*layer, LayerBytes(*layer) / static_cast<double>(count)});
  }
}

void StageExchange::MakeRings(RingPart part, bool coarse) {
  for (const Bucket& bucket : buckets_) {
    sums_.push_back(MakeRing(bucket.bytes, part, coarse, [this](int replica) {
      Count(replica, replicas_[static_cast<std::size_t>(replica)].summed, events_.summed);
    }));
    if (part == RingPart::kAll) continue;
    gathers_.push_back(MakeRing(bucket.bytes, part, coarse, [this](int replica) {
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
  if (++count == buckets_.size()) all(replica);
}

void StageExchange::LayerDone(int index, int layer) {
  Replica& replica = replicas_[static_cast<std::size_t>(index)];
  if (problem_.exchange_after && layer != first_layer_) return;
  if (replica.started == 0) replica.began = loop_.Now();
  while (replica.started < sums_.size() && buckets_[replica.started].layer >= layer)
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
