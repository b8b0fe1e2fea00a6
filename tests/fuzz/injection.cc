// Faults that people write: what is accepted is within its limits, and reads again as it is
// printed.
#include "core/injection.h"

#include "tests/fuzz/fuzz.h"

namespace adaptive_train::fuzz {

void FuzzOne(std::string_view input) {
  const auto faults = ParseInjections(input);
  if (!faults) {
    Require(!faults.error().message.empty());
    Require(faults.error().message.find('\n') == std::string::npos);
    return;
  }
  for (const Injection& fault : *faults) {
    Require(fault.step >= 1 && fault.percent >= 1 && fault.percent <= 100);
    Require(fault.kind != Injection::Kind::kSlow || fault.last_step >= fault.step);
    const auto again = ParseInjections(ToText(fault));
    Require(again && again->size() == 1 && again->front() == fault);
  }
}

std::vector<std::string> FuzzSeeds() {
  return {"kill rank 3 at step 20; freeze rank 1 at step 30", "cut node n2 at step 35;",
          "slow n4 to 30 % from 40 to 60", "slow rank 2 to 12.5% from step 4 to step 9",
          "fail save at 50"};
}

}  // namespace adaptive_train::fuzz
