// What the suite's tests are told of a real GPU.
#include <cstdlib>

#include "tests/unit/kernels/tested_device.h"

namespace adaptive_train::kernels {

// Under a tool that watches every access, tests/gpu/run sets the variable.
bool SlowDevice() { return std::getenv("ADAPTIVE_TRAIN_SLOW_DEVICE") != nullptr; }
void RunDescending(bool) {}

}  // namespace adaptive_train::kernels
