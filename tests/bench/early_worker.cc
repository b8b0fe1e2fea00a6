// For tests/bench/exchange_speed: a worker whose dense steps, too, send what the head adds to the
// matrix that embedding and head share before backward ends, and what lookups add with the next
// step. Linked in place of GradientReducer<float>::MayGoEarly, which refuses that to steps that hold
// nothing back, as their sums would no longer be the whole step's.
#include <cstddef>

#include "runtime/exchange/gradient_reducer.h"

namespace adaptive_train {

// A member function is called like a free one whose first parameter is the object.
bool AlwaysMayGoEarly(const GradientReducer<float>* reducer, std::size_t begin,
                      std::size_t end) asm("__wrap_" MAY_GO_EARLY);

/// For runs with compression.mode = topk at density 1 and one rank a node: lookups need residuals to
/// wait in, and buckets that go through their owners, which take residuals along.
bool AlwaysMayGoEarly(const GradientReducer<float>* /*reducer*/, std::size_t /*begin*/,
                      std::size_t /*end*/) {
  return true;
}

}  // namespace adaptive_train
