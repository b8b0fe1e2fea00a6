#include "launcher/planner/cuts.h"

#include <algorithm>
#include <limits>

namespace adaptive_train {
namespace {

class Cutter {
 public:
  Cutter(SearchTables& tables, const std::vector<Group>& groups, const Shape& shape,
         const std::vector<int>& places)
      : tables_(tables), shape_(shape), sums_(tables.Sums(shape.tensor, shape.recompute)) {
    const std::size_t classes = tables.Classes().size();
    members_.assign(static_cast<std::size_t>(shape.stages) * classes, 0);
    limit_.assign(static_cast<std::size_t>(shape.stages), std::numeric_limits<double>::infinity());
    for (std::size_t place = 0; place < places.size(); ++place) {
      const Group& group = groups[static_cast<std::size_t>(places[place])];
      const std::size_t stage = place / static_cast<std::size_t>(shape.data);
      members_[stage * classes + static_cast<std::size_t>(group.device_class)] += 1;
      limit_[stage] = std::min(limit_[stage], group.limit);
    }
    common_ = tables.CommonBytes(shape.recompute, shape.micro_batch);
    const std::int64_t batches = tables.Problem().global_batch / shape.micro_batch;
    at_once_ = (batches + shape.data - 1) / shape.data;
  }

  /// How long the stage's replicas need for a micro-batch of these layers, together: the harmonic
  /// mean, since slow ones can get fewer.
  double Seconds(int stage, int begin, int end) const {
    const std::size_t classes = tables_.Classes().size();
    double rate = 0;
    for (std::size_t c = 0; c < classes; ++c) {
      const double members = members_[static_cast<std::size_t>(stage) * classes + c];
      if (members == 0) continue;
      const DeviceClass& known = tables_.Classes()[c];
      const RangeSeconds lines = sums_.Seconds(known.kind, begin, end);
      const auto b = static_cast<double>(shape_.micro_batch);
      rate += members * known.standing / (lines.forward.At(b) + lines.backward.At(b));
    }
    return shape_.data / rate;
  }

  bool Fits(int stage, int begin, int end) const {
    const RangeBytes bytes = sums_.Bytes(shape_, begin, end);
    const double tied = stage + 1 == shape_.stages ? tables_.TiedBytes(shape_.stages) : 0;
    const auto held = static_cast<double>(
        std::min<std::int64_t>(at_once_, static_cast<std::int64_t>(shape_.stages - stage)));
    return common_ + tied + bytes.kept +
               static_cast<double>(shape_.micro_batch) * held * bytes.activations <=
           limit_[static_cast<std::size_t>(stage)];
  }

  /// Cuts with each stage within `seconds`; empty if there are none.
  std::vector<int> Within(double seconds) const {
    const int layers = tables_.Layers();
    std::vector<int> cut{0};
    for (int stage = 0; stage < shape_.stages; ++stage) {
      const int begin = cut.back(), most = layers - (shape_.stages - stage - 1);
      int reach = begin, beyond = most + 1;
      while (beyond - reach > 1) {
        const int middle = reach + (beyond - reach) / 2;
        const bool within = Fits(stage, begin, middle) && Seconds(stage, begin, middle) <= seconds;
        (within ? reach : beyond) = middle;
      }
      if (reach == begin) return {};
      cut.push_back(reach);
    }
    if (cut.back() < layers) return {};
    return cut;
  }

 private:
  SearchTables& tables_;
  const Shape& shape_;
  const LayerSums& sums_;
  std::vector<double> members_;  // index = stage x classes + class
  std::vector<double> limit_;    // index = stage; bytes
  double common_ = 0;
  std::int64_t at_once_ = 1;
};

}  // namespace

std::vector<int> EvenCuts(int layers, int stages) {
  std::vector<int> cut;
  for (int s = 0; s <= stages; ++s)
    cut.push_back(static_cast<int>(static_cast<std::int64_t>(layers) * s / stages));
  return cut;
}

std::vector<int> BestCuts(SearchTables& tables, const std::vector<Group>& groups,
                          const Shape& shape, const std::vector<int>& places) {
  if (shape.stages == 1) return {0, tables.Layers()};
  const Cutter cutter(tables, groups, shape, places);
  double high = 0;
  for (int s = 0; s < shape.stages; ++s)
    high = std::max(high, cutter.Seconds(s, 0, tables.Layers()));
  std::vector<int> best = cutter.Within(high * (1 + 1e-9));
  if (best.empty()) return best;
  double low = 0;
  constexpr int kHalvings = 24;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    if (auto cut = cutter.Within(middle); cut.empty()) {
      low = middle;
    } else {
      best = std::move(cut);
      high = middle;
    }
  }
  return best;
}

}  // namespace adaptive_train
