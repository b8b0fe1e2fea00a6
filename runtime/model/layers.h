// The two layers with parameters that blocks and heads consist of: linear layers and norms.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "runtime/model/layer_clock.h"
#include "runtime/model/micro_batch_state.h"
#include "runtime/model/parameter_layout.h"
#include "runtime/model/tensor_ranks.h"

namespace adaptive_train {

/// The device of a stage, its arenas in device memory, and the ranks that share its layers. All
/// owned by the caller.
template <class T>
struct StageMemory {
  kernels::Device<T>& device;
  const T* parameters;
  kernels::Accumulator<T>* gradients;
  const TensorRanks<T>& tensor;
  /// This rank's part of the groups in which sums are made that tensor ranks share; 0: no groups,
  /// and bits that depend on the number of ranks.
  std::int64_t groups = 0;
  // Where tensor ranks share rows between the products (Korthikanti et al. 2022): room for whole
  // ones, [rows, hidden], and for a norm's gradients. nullptr: each rank has all rows.
  T* whole = nullptr;
  kernels::Accumulator<T>* norm_gradients = nullptr;
  PassTimes* times = nullptr;  // of a block, while layers are measured

  bool SharesRows() const { return whole != nullptr; }
  /// Of so many rows, those that this rank has between the products.
  ElementRange OwnRows(std::int64_t rows) const {
    return SharesRows() ? tensor.part.Of(rows) : ElementRange{0, rows};
  }
  /// All rows of what each rank has its rows of: in `whole` where they share them.
  const T* Whole(std::int64_t rows, std::int64_t columns, const T* own) const;
  /// Makes the ranks' parts of a result the whole result on each.
  void Sum(T* values, std::int64_t count) const {
    if (tensor.part.ranks > 1) tensor.sum({values, static_cast<std::size_t>(count)});
  }
};

/// output[rows, out] = input[rows, in] weight[in, out] + bias[out], with a bias if the layout has
/// one. Tensor ranks that share the weight by its columns have their columns of the output, and the
/// whole d_input; those that share it by its rows have their columns of input and d_input, and the
/// whole output (Shoeybi et al. 2019). Of them the first one adds bias and residual to its part, so
/// that the sum has them once. Where they share rows, what is said to be whole above is a rank's own
/// rows outside of the layer, and `rows` still counts all.
template <class T>
class LinearLayer {
 public:
  /// Uses the ranges name.weight and name.bias of the layout.
  LinearLayer(const ParameterLayout& layout, const std::string& name);

  /// The epilogue of the product, as in kernels/matmul.h. What is summed over tensor ranks has none
  /// but the residual.
  struct Epilogue {
    const T* residual = nullptr;
    kernels::GeluForm gelu = kernels::GeluForm::kNone;
    T* activated = nullptr;
    const T* gelu_input = nullptr;
  };
  void Forward(const StageMemory<T>& memory, std::int64_t rows, const T* input, T* output,
               const Epilogue& epilogue = {}) const;
  /// Adds to the gradients of weight and bias; overwrites d_input.
  void Backward(const StageMemory<T>& memory, std::int64_t rows, const T* d_output, const T* input,
                T* d_input, const Epilogue& epilogue = {}) const;
  // The halves of Backward.
  void WeightGradient(const StageMemory<T>& memory, std::int64_t rows, const T* d_output,
                      const T* input) const;
  void InputGradient(const StageMemory<T>& memory, std::int64_t rows, const T* d_output, T* d_input,
                     const Epilogue& epilogue = {}) const;

 private:
  // Of all rows.
  const T* WholeInput(const StageMemory<T>& memory, std::int64_t rows, const T* input) const;
  const T* WholeGradient(const StageMemory<T>& memory, std::int64_t rows, const T* d_output) const;
  void WeightProduct(const StageMemory<T>& memory, std::int64_t rows, const T* d_output,
                     const T* input) const;
  void InputProduct(const StageMemory<T>& memory, std::int64_t rows, const T* d_output, T* d_input,
                    const Epilogue& epilogue) const;
  /// Where a product that is summed over ranks goes, and what it adds itself.
  struct Summed {
    T* product;
    const T* residual;
  };
  Summed SummedTo(const StageMemory<T>& memory, bool summed, T* result, const T* residual) const;
  void Sum(const StageMemory<T>& memory, std::int64_t rows, std::int64_t columns, T* result,
           const T* residual) const;
  /// The product's groups if tensor ranks share its sums over these runs.
  kernels::InnerGroups GroupsOf(const StageMemory<T>& memory, TensorSplit shared,
                                const std::vector<std::int64_t>& runs) const {
    if (memory.groups == 0 || split_ != shared) return {};
    return {memory.groups, runs};
  }

  TensorSplit split_;
  std::vector<std::int64_t> in_runs_, out_runs_;
  std::int64_t in_, out_, weight_;
  std::int64_t bias_;  // -1: none
};

/// A layer norm, or an RMS norm if the layout has no bias for it.
template <class T>
class NormLayer {
 public:
  NormLayer(const ParameterLayout& layout, const std::string& name, double epsilon);

  /// output may be input.
  void Forward(const StageMemory<T>& memory, std::int64_t rows, const T* input, T* output,
               NormStatistics<T>& statistics) const;
  /// Adds to the gradients of weight and bias. `d_input` is added to, or overwritten, in which case
  /// it may be d_output. The statistics are those of the input's Forward.
  void Backward(const StageMemory<T>& memory, std::int64_t rows, const T* d_output, const T* input,
                T* d_input, bool accumulate, const NormStatistics<T>& statistics) const;

 private:
  double epsilon_;
  std::int64_t columns_, weight_;
  std::int64_t bias_;  // -1: an RMS norm
};

}  // namespace adaptive_train
