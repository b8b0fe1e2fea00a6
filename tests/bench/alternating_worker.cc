// For tests/bench/gate_harm: a worker of `compression.mode = auto` that exchanges as `off` does in
// every second block of steps. The order is A D D A, so that a drift of the machine affects both.
// Replaces two members of CompressionControl at link time.
#include "runtime/train/compression_control.h"

namespace adaptive_train {

/// Steps; tests/bench/gate_harm uses the same number. The first block includes the warm-up and is
/// auto's.
constexpr std::int64_t kBlock = 10;

namespace {
bool dense = false;  // the current step's block is dense
}

// A member function is called like a free one whose first parameter is the object.
ExchangePolicy RealPolicyOf(const CompressionControl* control,
                            std::int64_t step) asm("__real_" POLICY_OF);
ExchangePolicy AlternatingPolicyOf(const CompressionControl* control,
                                   std::int64_t step) asm("__wrap_" POLICY_OF);
std::optional<CompressionDecision> RealEndStep(CompressionControl* control, const GateStep& step,
                                               bool skipped, bool counts,
                                               Groups& groups) asm("__real_" END_STEP);
std::optional<CompressionDecision> AlternatingEndStep(CompressionControl* control,
                                                      const GateStep& step, bool skipped,
                                                      bool counts,
                                                      Groups& groups) asm("__wrap_" END_STEP);

ExchangePolicy AlternatingPolicyOf(const CompressionControl* control, std::int64_t step) {
  const std::int64_t place = (step - 1) / kBlock % 4;
  dense = place == 1 || place == 2;
  return dense ? ExchangePolicy{} : RealPolicyOf(control, step);
}

std::optional<CompressionDecision> AlternatingEndStep(CompressionControl* control,
                                                      const GateStep& step, bool skipped,
                                                      bool counts, Groups& groups) {
  if (dense) return std::nullopt;
  return RealEndStep(control, step, skipped, counts, groups);
}

}  // namespace adaptive_train
