#include "runtime/model/layer_numbers.h"

namespace adaptive_train {

std::vector<int> LayerNumbersOf(const ParameterLayout& layout, std::int64_t blocks) {
  std::vector<int> numbers{0};
  for (const ParameterRange& range : layout.ranges()) {
    const int number = static_cast<int>(1 + range.block);
    if (range.part == LayerPart::kBlock && numbers.back() != number) numbers.push_back(number);
  }
  numbers.push_back(static_cast<int>(1 + blocks));
  return numbers;
}

}  // namespace adaptive_train
