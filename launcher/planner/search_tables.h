// Values that the search needs often, computed once from a problem: device classes, prefix sums
// over layers, memory limits.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "launcher/planner/problem.h"
#include "launcher/planner/ring.h"

namespace adaptive_train {

/// One shape of the layout, before devices are chosen.
struct Shape {
  int stages = 1;
  int data = 1;
  int tensor = 1;
  std::int64_t micro_batch = 0;  // one stage: the largest allowed, 0 = what fits
  Recompute recompute = Recompute::kNone;
  int shard = 0;

  int Groups() const { return stages * data; }
  bool operator==(const Shape&) const = default;
};

/// Seconds of a range of layers on a device class.
struct RangeSeconds {
  Line forward, backward;
  double update = 0;
};

/// Sums over tensor ranks that a range of layers waits for.
struct RangeSums {
  RankSums forward, backward;
};

/// Bytes of a range of layers on one device, by what they grow with.
struct RangeBytes {
  double kept = 0;         // parameters, gradients, moments, snapshot, pieces of the exchange
  double activations = 0;  // of one sample of one micro-batch
};

/// Prefix sums over the layers for one number of tensor ranks and one recomputation. A value; the
/// problem must outlive it.
class LayerSums {
 public:
  LayerSums(const PlanProblem& problem, int tensor, Recompute recompute);

  /// Layers [begin, end) on a device of a kind with standing 1, without tensor communication.
  RangeSeconds Seconds(int kind, int begin, int end) const;
  RangeBytes Bytes(const Shape& shape, int begin, int end) const;
  /// The sums over tensor ranks; none with one rank.
  RangeSums Sums(int begin, int end) const;

 private:
  struct KindSums {
    std::vector<Line> forward, backward;
    std::vector<double> update;
  };
  double UnitBytes(const Shape& shape, int begin, int end, double gradients) const;

  const PlanProblem& problem_;
  int tensor_;
  double snapshot_share_, passing_gradients_, on_their_way_;
  double feedback_copies_, sharded_copies_;  // of gradients, for their exchange
  std::vector<KindSums> kinds_;
  std::vector<double> parameters_, gradients_, optimizer_, activations_;
  std::vector<RangeSums> tensor_sums_;
};

/// Devices of equal speed: same kind and standing.
struct DeviceClass {
  int kind = 0;
  double standing = 1;
};

/// Holds a reference to the problem, which must outlive it and pass CheckProblem. Sums are computed
/// on first use, so it is not thread-safe.
class SearchTables {
 public:
  explicit SearchTables(const PlanProblem& problem);

  const PlanProblem& Problem() const { return problem_; }
  int Layers() const { return static_cast<int>(problem_.layers.size()); }
  const std::vector<DeviceClass>& Classes() const { return classes_; }
  int ClassOf(int device) const { return class_of_[static_cast<std::size_t>(device)]; }
  int NodeOf(int device) const { return problem_.devices[static_cast<std::size_t>(device)].node; }
  double MemoryLimit(int device) const { return limit_[static_cast<std::size_t>(device)]; }
  const LayerSums& Sums(int tensor, Recompute recompute);
  RingFinder& Rings() { return rings_; }

  /// Computing that a byte sent or received takes from such a device.
  double TransferPerByte(int device_class) const;
  /// Seconds of a forward and backward pass of the whole model with one sample: how slow a device
  /// class is.
  double Slowness(int device_class) const {
    return slowness_[static_cast<std::size_t>(device_class)];
  }

 private:
  const PlanProblem& problem_;
  std::vector<DeviceClass> classes_;
  std::vector<int> class_of_;
  std::vector<double> limit_, slowness_;
  std::map<std::pair<int, Recompute>, LayerSums> sums_;
  RingFinder rings_;
};

/// The largest micro-batch up to `most` for which kept bytes, activations and scratch fit into
/// `limit`; 0 if none does. For a shape of one stage.
std::int64_t LargestMicroBatch(const PlanProblem& problem, const RangeBytes& bytes,
                               const Shape& shape, double limit, std::int64_t most);

}  // namespace adaptive_train
