// A bucket that is summed by the tree over the step's units.
#include <cassert>
#include <utility>

#include "runtime/exchange/bucket_sum.h"
#include "runtime/exchange/tree_exchange.h"

namespace adaptive_train {

template <class T>
Request TreeSum<T>::Start(const CollectiveLane& lane) {
  ReducerState<T>& state = this->state_;
  const GradientBucket& bucket = this->Bucket();
  const UnitTrees& trees = *state.options.trees;
  TreeExchangeOrder order;
  order.units = trees.units;
  for (const int owner : state.Owners()) {
    order.shares.push_back(trees.shares[static_cast<std::size_t>(owner)]);
    const ElementRange chunk = state.buckets.RangeOf(bucket, owner);
    const auto begin = static_cast<std::int64_t>(bucket.begin);
    order.chunks.push_back({chunk.begin - begin, chunk.end - begin});
  }
  for (const UnitTree& tree : trees.trees) {
    if (tree.end <= bucket.begin || bucket.end <= tree.begin) continue;
    assert(tree.begin <= bucket.begin && bucket.end <= tree.end);
    std::vector<float*>& nodes = order.trees.emplace_back();
    for (float* node : tree.nodes) nodes.push_back(node + (bucket.begin - tree.begin));
  }
  order.gather = !state.options.sharded;
  order.result = state.gradients.subspan(bucket.begin, bucket.size());
  state.counts.selected += static_cast<std::int64_t>(bucket.size());
  return state.group.Launch(
      std::make_shared<TreeExchange>(state.NameOf(lane, this->number_), lane, std::move(order)));
}

template class TreeSum<float>;
template class TreeSum<kernels::BFloat16>;
template class TreeSum<kernels::Float16>;

}  // namespace adaptive_train
