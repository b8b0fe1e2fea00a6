// Cutting work into pieces for a device's threads.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <exception>

namespace adaptive_train::kernels::cpu {

/// Elements of a piece of element by element work: large against the cost of handing it out.
inline constexpr std::int64_t kElementsPerPiece = 16384;

/// Calls body(index, thread) for every index in [0, count), thread in [0, threads). Each index runs on
/// one thread, in no particular order, so a body must write nothing that another one reads. An exception
/// of a body is thrown again here when all have ended.
template <class Body>
void ParallelFor(int threads, std::int64_t count, const Body& body) {
  if (threads == 1 || count <= 1) {
    for (std::int64_t index = 0; index < count; ++index) body(index, 0);
    return;
  }
  std::exception_ptr failure;
#pragma omp parallel for num_threads(threads) schedule(static)
  for (std::int64_t index = 0; index < count; ++index) {
    try {
      body(index, omp_get_thread_num());
    } catch (...) {
#pragma omp critical(adaptive_train_parallel_for)
      failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

/// Calls body(begin, end) for pieces of at most `piece` that cover [0, count).
template <class Body>
void ParallelPieces(int threads, std::int64_t count, std::int64_t piece, const Body& body) {
  ParallelFor(threads, (count + piece - 1) / piece, [&](std::int64_t index, int) {
    body(index * piece, std::min(count, (index + 1) * piece));
  });
}

}  // namespace adaptive_train::kernels::cpu
