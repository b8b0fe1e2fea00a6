#include "launcher/planner/local_search.h"

#include <algorithm>
#include <numeric>

namespace adaptive_train {
namespace {

std::size_t Index(int i) { return static_cast<std::size_t>(i); }

/// A deterministic pseudo-random sequence (Steele et al. 2014, SplitMix64).
class Sequence {
 public:
  int Below(int n) {
    state_ += 0x9e3779b97f4a7c15U;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return static_cast<int>((z ^ (z >> 31)) % static_cast<std::uint64_t>(n));
  }

 private:
  std::uint64_t state_ = 1;
};

class LocalSearch {
 public:
  LocalSearch(Arrangement& arrangement, std::int64_t evaluations, const std::stop_token& stop)
      : arrangement_(arrangement), shape_(arrangement.GetShape()), left_(evaluations), stop_(stop) {
    std::vector<bool> used(arrangement.Groups().size());
    for (int group : arrangement.Current().groups) used[Index(group)] = true;
    for (std::size_t g = 0; g < used.size(); ++g)
      if (!used[g]) idle_.push_back(static_cast<int>(g));
  }

  double Run() {
    Descend();
    double best = arrangement_.Score();
    Placement placement = arrangement_.Current();
    std::vector<int> idle = idle_;
    while (left_ > 0 && CanShake()) {
      Shake();
      Descend();
      if (arrangement_.Score() < best) {
        best = arrangement_.Score();
        placement = arrangement_.Current();
        idle = idle_;
      } else if (left_ > 0) {
        arrangement_.Set(placement);
        idle_ = idle;
      }
    }
    return arrangement_.Set(placement);
  }

  double MoveStages() {
    bool better = true;
    while (better && left_ > 0) {
      better = SwapSlowestStage();
      better |= MoveCuts();
    }
    return arrangement_.Score();
  }

 private:
  static constexpr int kAllPairs = 40;  // places up to which every pair is tried

  bool CanShake() const { return shape_.stages > 1 || !idle_.empty(); }
  int Places() const { return shape_.Groups(); }
  int GroupAt(int place) const { return arrangement_.Current().groups[Index(place)]; }

  bool Alike(int group, int other) const {
    const Group& a = arrangement_.Groups()[Index(group)];
    const Group& b = arrangement_.Groups()[Index(other)];
    return a.device_class == b.device_class && a.node == b.node && a.limit == b.limit;
  }

  /// Keeps a change that improved the score, else reverts it.
  bool Keep(double before, double after) {
    left_ = stop_.stop_requested() ? 0 : left_ - 1;
    if (after < before * (1 - 1e-12)) return true;
    arrangement_.Undo();
    return false;
  }

  bool TrySwap(int place, int other) {
    if (Alike(GroupAt(place), GroupAt(other))) return false;
    const double before = arrangement_.Score();
    return Keep(before, arrangement_.Swap(place, other));
  }

  bool TryIdle(int place, std::size_t idle) {
    const int group = GroupAt(place);
    if (Alike(group, idle_[idle])) return false;
    const double before = arrangement_.Score();
    if (!Keep(before, arrangement_.Replace(place, idle_[idle]))) return false;
    idle_[idle] = group;
    return true;
  }

  bool MoveCuts() {
    if (!arrangement_.HasFreeCuts()) return false;
    bool better = false;
    for (int step : {1, -1, 2, -2, 4, -4}) {
      for (int boundary = 1; boundary < shape_.stages && left_ > 0; ++boundary) {
        const auto& cut = arrangement_.Current().cut;
        const int to = cut[Index(boundary)] + step;
        if (to <= cut[Index(boundary) - 1] || to >= cut[Index(boundary) + 1]) continue;
        const double before = arrangement_.Score();
        better |= Keep(before, arrangement_.MoveCut(boundary, to));
      }
    }
    return better || ShiftLayer();
  }

  /// Moves one layer between two stages by shifting all cuts between them.
  bool ShiftLayer() {
    bool better = false;
    for (int from = 0; from < shape_.stages && left_ > 0; ++from) {
      for (int to = 0; to < shape_.stages && left_ > 0; ++to) {
        if (std::abs(from - to) < 2) continue;
        std::vector<int> cut = arrangement_.Current().cut;
        if (cut[Index(from) + 1] - cut[Index(from)] < 2) continue;
        for (int s = std::min(from, to) + 1; s <= std::max(from, to); ++s)
          cut[Index(s)] += from < to ? -1 : 1;
        const double before = arrangement_.Score();
        better |= Keep(before, arrangement_.SetCuts(cut));
      }
    }
    return better;
  }

  bool SwapStages() {
    bool better = false;
    for (int s = 0; s < shape_.stages; ++s) {
      for (int other = s + 1; other < shape_.stages && left_ > 0; ++other) {
        const double before = arrangement_.Score();
        better |= Keep(before, arrangement_.SwapStages(s, other));
      }
    }
    return better;
  }

  /// The stage with the longest exchange may have better links elsewhere.
  bool SwapSlowestStage() {
    bool better = false;
    for (int other = 0; other < shape_.stages && left_ > 0; ++other) {
      if (other == arrangement_.SlowestStage()) continue;
      const double before = arrangement_.Score();
      better |= Keep(before, arrangement_.SwapStages(arrangement_.SlowestStage(), other));
    }
    return better;
  }

  bool SwapAllPairs() {
    bool better = false;
    for (int a = 0; a < Places() && left_ > 0; ++a) {
      for (int b = a + 1; b < Places() && left_ > 0 && shape_.stages > 1; ++b)
        better |= TrySwap(a, b);
      for (std::size_t i = 0; i < idle_.size() && left_ > 0; ++i) better |= TryIdle(a, i);
    }
    return better;
  }

  /// A place of the slowest replica or of the slowest stage, or any place.
  int PromisingPlace() {
    switch (sequence_.Below(4)) {
      case 0:
        return arrangement_.SlowestStage() * shape_.data + sequence_.Below(shape_.data);
      case 1:
        return sequence_.Below(Places());
      default:
        return sequence_.Below(shape_.stages) * shape_.data + arrangement_.SlowestReplica();
    }
  }

  bool SwapSomePairs() {
    bool better = false;
    // Half of the remaining evaluations is kept for cuts and other starts.
    const std::int64_t until = left_ - std::min<std::int64_t>(left_ / 2 + 1, 20 * Places());
    for (int tries = 0; left_ > until && tries < 60 * Places(); ++tries) {
      const int place = PromisingPlace();
      const int with = sequence_.Below(Places() + static_cast<int>(idle_.size()));
      if (with >= Places())
        better |= TryIdle(place, Index(with - Places()));
      else if (shape_.stages > 1 && with != place)
        better |= TrySwap(place, with);
    }
    return better;
  }

  void Descend() {
    bool better = true;
    while (better && left_ > 0) {
      better = MoveCuts();
      better |= SwapStages();
      better |=
          Places() + static_cast<int>(idle_.size()) <= kAllPairs ? SwapAllPairs() : SwapSomePairs();
    }
  }

  /// Makes a few changes that are kept whatever their score.
  void Shake() {
    const int changes = 1 + sequence_.Below(3);
    for (int i = 0; i < changes; ++i, --left_) {
      const int kind = sequence_.Below(4);
      if (kind == 0 && shape_.stages > 1 && arrangement_.HasFreeCuts()) {
        const auto& cut = arrangement_.Current().cut;
        const int boundary = 1 + sequence_.Below(shape_.stages - 1);
        const int low = cut[Index(boundary) - 1] + 1, high = cut[Index(boundary) + 1];
        arrangement_.MoveCut(boundary, low + sequence_.Below(high - low));
      } else if (kind == 1 && !idle_.empty()) {
        const std::size_t idle = Index(sequence_.Below(static_cast<int>(idle_.size())));
        const int place = sequence_.Below(Places()), group = GroupAt(place);
        arrangement_.Replace(place, idle_[idle]);
        idle_[idle] = group;
      } else if (Places() > 1) {
        const int place = sequence_.Below(Places());
        const int other = (place + 1 + sequence_.Below(Places() - 1)) % Places();
        arrangement_.Swap(place, other);
      }
    }
  }

  Arrangement& arrangement_;
  const Shape& shape_;
  std::int64_t left_;
  const std::stop_token& stop_;
  std::vector<int> idle_;
  Sequence sequence_;
};

}  // namespace

double Improve(Arrangement& arrangement, std::int64_t evaluations, const std::stop_token& stop) {
  return LocalSearch(arrangement, evaluations, stop).Run();
}

double ImproveStages(Arrangement& arrangement, std::int64_t evaluations,
                     const std::stop_token& stop) {
  return LocalSearch(arrangement, evaluations, stop).MoveStages();
}

}  // namespace adaptive_train
