// The oracle's description of itself.
#include "kernels/reference/reference_device.h"

namespace adaptive_train::kernels::reference {

template <class T>
std::string ReferenceDevice<T>::Description() const {
  return sizeof(T) == sizeof(double) ? "reference loops in float64, 1 thread"
                                     : "reference loops in float32, 1 thread";
}

template std::string ReferenceDevice<float>::Description() const;
template std::string ReferenceDevice<double>::Description() const;

}  // namespace adaptive_train::kernels::reference
