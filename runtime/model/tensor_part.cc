#include "runtime/model/tensor_part.h"

namespace adaptive_train {

ModelDims PartOf(const ModelDims& dims, const TensorPart& part) {
  ModelDims of_part = dims.Part(part.ranks);
  of_part.vocab = part.Of(dims.vocab).size();
  return of_part;
}

}  // namespace adaptive_train
