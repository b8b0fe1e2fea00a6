// Shapes worth improving, each with a first placement, as starts for local search.
#pragma once

#include <limits>
#include <memory>
#include <set>
#include <stop_token>
#include <tuple>
#include <vector>

#include "launcher/planner/arrangement.h"
#include "launcher/planner/seeds.h"
#include "launcher/planner/shapes.h"

namespace adaptive_train {

/// One way to bundle devices into groups of tensor ranks.
struct Side {
  std::vector<Group> groups;
  GroupOrders orders;
};

/// A shape and the best placement of it so far.
struct Candidate {
  Shape shape;
  const Side* side = nullptr;
  Placement placement;
  double score = std::numeric_limits<double>::infinity();
  std::vector<Placement> others;  // the next best to start from
};

/// How many shapes get a first placement, and how many evaluations of groups each may use.
struct SeedEffort {
  std::size_t shapes = 0;    // in the order of their bounds; neighbours of the best come on top
  std::int64_t descent = 0;  // of one group's, that move layers and stages of a first placement
  int rounds = 0;            // of neighbours
};

/// Holds a reference to the tables. Once `stop` is requested, nothing more is found. Not thread-safe.
class Candidates {
 public:
  Candidates(SearchTables& tables, const SeedEffort& effort, std::stop_token stop = {});

  /// Makes the best first placements of shapes, most promising first, until no other shape can win
  /// or the effort is spent. Neighbours of the best shapes are added after that.
  void Seed();
  /// Makes first placements of the best `count` shapes with other numbers of replicas. Returns the
  /// number of new candidates, which are the last ones in All().
  std::size_t SeedReplicas(std::size_t count);

  std::vector<Candidate>& All() { return candidates_; }
  /// Sorts All(), best first.
  void Sort();
  /// Seconds that no layout can go below.
  double Bound() const { return bound_; }

 private:
  struct Bounded {
    double bound;
    ShapeRange range;
    const Side* side;
  };
  using Key = std::tuple<const Side*, int, int, std::int64_t, Recompute, int>;

  void CollectShapes();
  bool SeedOne(const Shape& shape, const Side* side);
  bool SeedOne(const Bounded& bounded) { return SeedOne(bounded.range.shape, bounded.side); }
  void SeedFamilies();
  void SeedNeighbours();
  void Descend(Arrangement& arrangement, std::vector<std::pair<double, Placement>>& seeds);

  SearchTables& tables_;
  SeedEffort effort_;
  const std::stop_token stop_;
  std::vector<std::unique_ptr<Side>> sides_;
  std::vector<Bounded> shapes_;
  std::set<Key> known_;
  std::vector<Candidate> candidates_;
  double best_seed_ = std::numeric_limits<double>::infinity();
  double bound_ = std::numeric_limits<double>::infinity();
};

}  // namespace adaptive_train
