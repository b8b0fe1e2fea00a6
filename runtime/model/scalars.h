// The scalars that models are instantiated for.
#pragma once

#include "kernels/scalar.h"

/// Expands `declaration`<T> for each of them; float64 is for the oracle.
/// NOLINTBEGIN(bugprone-macro-parentheses): declarations cannot stand in parentheses.
#define ADAPTIVE_TRAIN_FOR_EACH_SCALAR(declaration) \
  declaration<double>;                              \
  declaration<float>;                               \
  declaration<kernels::BFloat16>;                   \
  declaration<kernels::Float16>;
// NOLINTEND(bugprone-macro-parentheses)
