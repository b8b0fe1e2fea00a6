// adaptive-train data show: the content of a data set.
#pragma once

#include <cstdint>
#include <string>

namespace adaptive_train {

struct DataShowRequest {
  std::string path;
  std::string format = "auto";
  std::int64_t first_tokens = 64;
  bool json = false;
};

/// Prints it to standard output, or one line to standard error. Returns the exit code.
int RunDataShow(const DataShowRequest& request);

}  // namespace adaptive_train
