// Sums in double: pieces by several threads, the pieces' sums by one.
#include <numeric>
#include <vector>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/vector_math.h"

namespace adaptive_train::kernels::cpu {
namespace {

template <class Term>
double SumOfPieces(ThreadPool& pool, std::int64_t count, std::vector<double>& partial,
                   const Term& term) {
  partial.resize(static_cast<std::size_t>((count + kElementsPerPiece - 1) / kElementsPerPiece));
  pool.ForPieces(count, kElementsPerPiece, [&](std::int64_t begin, std::int64_t end) {
    partial[static_cast<std::size_t>(begin / kElementsPerPiece)] =
        SumOf<double>(end - begin, [&](std::int64_t i) { return term(begin + i); });
  });
  return std::accumulate(partial.begin(), partial.end(), 0.0);
}

}  // namespace

double CpuDevice::Sum(std::int64_t count, const float* values) {
  return SumOfPieces(pool_, count, partial_,
                     [=](std::int64_t i) { return static_cast<double>(values[i]); });
}

double CpuDevice::SquaredNorm(std::int64_t count, const float* values) {
  return SumOfPieces(pool_, count, partial_, [=](std::int64_t i) {
    return static_cast<double>(values[i]) * static_cast<double>(values[i]);
  });
}

}  // namespace adaptive_train::kernels::cpu
