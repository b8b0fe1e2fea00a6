// The scalars that models are instantiated for.
#pragma once

#include "kernels/scalar.h"

/// `declaration`<T>; for each of them: float64 is the oracle's.
// NOLINTBEGIN(bugprone-macro-parentheses): declarations cannot stand in any.
#define ADAPTIVE_TRAIN_FOR_EACH_SCALAR(declaration) \
  declaration<double>;                              \
  declaration<float>;                               \
  declaration<kernels::BFloat16>;                   \
  declaration<kernels::Float16>;
// NOLINTEND(bugprone-macro-parentheses)
