// Panels: pieces of float, BFloat16 or Float16 matrices, copied as float32.
#pragma once

#include <cstdint>

namespace adaptive_train::kernels::cpu {

/// A piece of a matrix and a panel of floats, each row-major with its own distance between rows.
/// They do not overlap.
template <class T>
struct PanelArguments {
  std::int64_t rows = 0;  // of the matrix
  std::int64_t columns = 0;
  T* matrix = nullptr;
  std::int64_t matrix_stride = 0;
  float* panel = nullptr;
  std::int64_t panel_stride = 0;
  float factor = 1;  // applied to every copied element
};

template <class T>
using WidenArguments = PanelArguments<const T>;
template <class T>
using NarrowArguments = PanelArguments<T>;

/// Copy the matrix to the panel; the second one transposes, and its panel has `columns` rows.
template <class T>
void Widen(const WidenArguments<T>& x);
template <class T>
void WidenTransposed(const WidenArguments<T>& x);

/// Copies the matrix, without a factor, to panels one after the other, each of panel_stride columns
/// and as many rows as the matrix. The last one may have columns that are not written.
template <class T>
void WidenToPanels(const WidenArguments<T>& x);

/// Copies the panel to the matrix, rounded to T.
template <class T>
void Narrow(const NarrowArguments<T>& x);

}  // namespace adaptive_train::kernels::cpu
