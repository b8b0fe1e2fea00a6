#include "runtime/train/unit_gradients.h"

#include <algorithm>

#include "kernels/allocation_failure.h"

namespace adaptive_train {

template <class T>
UnitGradients<T>::UnitGradients(const Plan& plan, const RankPlan& own, bool tied, bool halves,
                                RankState<T>& state)
    : arena_(state.Size()),
      trained_(state.TrainedSize()),
      matrix_(state.layout.Find("wte.weight")),
      shared_(tied && plan.Pipeline() == 1),
      copied_(state.layout.Copy() != nullptr),
      embedding_pass_(halves ? Pass::kInput : Pass::kBackward),
      own_(UnitsOf(own)),
      units_(plan.global_batch / own.micro_batch),
      sums_(state.device, state.gradients.span(), own_, units_) {
  for (int replica = 0; replica < plan.data; ++replica)
    shares_.push_back(UnitsOf(plan.ranks[static_cast<std::size_t>(replica * plan.tensor)]));
  for (const ParameterRange& range : state.layout.ranges()) {
    const auto begin = static_cast<std::size_t>(range.offset);
    const auto end = begin + static_cast<std::size_t>(range.count);
    const Pass pass = PassOf(range, halves);
    if (!parts_.empty() && parts_.back().pass == pass) {
      parts_.back().end = end;
    } else {
      parts_.push_back({begin, end, pass});
    }
  }
  if (!shared_) return;
  embedding_ = kernels::AllocatedFor("the embedding's gradient of the shared matrix", [&] {
    return kernels::Buffer<float>(state.device, static_cast<std::size_t>(matrix_->count));
  });
  embedding_sums_.emplace(state.device, embedding_.span(), own_, units_);
}

/// The second half of backward makes the gradients of the blocks' products (TransformerBlock).
template <class T>
typename UnitGradients<T>::Pass UnitGradients<T>::PassOf(const ParameterRange& range,
                                                         bool halves) const {
  const bool of_head = &range == matrix_ ? shared_ || copied_ : range.name == "lm_head.weight";
  if (of_head || range.name == "head.bias") return Pass::kLoss;
  const auto in = [&](const char* part) { return range.name.find(part) != std::string::npos; };
  const bool product = range.part == LayerPart::kBlock && (in(".attn.") || in(".mlp."));
  return halves && !product ? Pass::kInput : Pass::kBackward;
}

template <class T>
void UnitGradients<T>::Take(Pass pass, std::size_t begin, std::size_t end, int micro_batch) {
  const std::int64_t unit = own_.begin + micro_batch;
  for (const Part& part : parts_) {
    const std::size_t from = std::max(begin, part.begin), to = std::min(end, part.end);
    if (part.pass == pass && from < to) sums_.Take(from, to, unit);
  }
  if (!shared_ || pass != embedding_pass_) return;
  const auto matrix = static_cast<std::size_t>(matrix_->offset);
  if (begin <= matrix && matrix < end) embedding_sums_->Take(0, embedding_.size(), unit);
}

template <class T>
std::vector<std::span<float>> UnitGradients<T>::Nodes(std::size_t begin, std::size_t end) {
  std::vector<std::span<float>> nodes;
  for (const std::span<float> node : sums_.Nodes())
    nodes.push_back(node.subspan(begin, end - begin));
  return nodes;
}

template <class T>
UnitTrees UnitGradients<T>::Trees(const std::vector<float*>& heads) {
  const auto first_elements = [](const std::vector<std::span<float>>& nodes) {
    std::vector<float*> places;
    for (const std::span<float> node : nodes) places.push_back(node.data());
    return places;
  };
  UnitTrees trees{.units = units_, .shares = shares_, .trees = {}};
  trees.trees.push_back({0, trained_, first_elements(sums_.Nodes())});
  if (!shared_ && heads.empty()) return trees;
  const auto begin = static_cast<std::size_t>(matrix_->offset);
  const auto end = begin + static_cast<std::size_t>(matrix_->count);
  trees.trees.push_back({begin, end, shared_ ? first_elements(embedding_sums_->Nodes()) : heads});
  return trees;
}

template class UnitGradients<float>;
template class UnitGradients<kernels::BFloat16>;
template class UnitGradients<kernels::Float16>;

}  // namespace adaptive_train
