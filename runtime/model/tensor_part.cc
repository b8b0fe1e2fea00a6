#include "runtime/model/tensor_part.h"

#include <cassert>

namespace adaptive_train {

ModelDims PartOf(const ModelDims& dims, const TensorPart& part) {
  if (part.ranks == 1) return dims;
  assert(dims.heads % part.ranks == 0 && dims.KvHeads() % part.ranks == 0 &&
         dims.Ffn() % part.ranks == 0);
  ModelDims of_part = dims;
  of_part.head_size = dims.HeadSize();
  of_part.heads = dims.heads / part.ranks;
  of_part.kv_heads = dims.KvHeads() / part.ranks;
  of_part.ffn = dims.Ffn() / part.ranks;
  of_part.vocab = part.Of(dims.vocab).size();
  return of_part;
}

}  // namespace adaptive_train
