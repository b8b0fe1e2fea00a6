// What compressing is expected to send: the figures of docs/gradient_exchange.md.
#include "launcher/planner/compression.h"

#include <gtest/gtest.h>

namespace adaptive_train::compression_test {
namespace {

/// Bits that an element puts on a link, there and back.
double Bits(const CompressionRequest& request, int members) {
  return 2 * 8 * CompressedBytes(request, members, 4);
}

TEST(CompressedBytes, IsWhatTheExchangeWasSeenToSend) {
  // tests/bench/exchange_bytes, four ranks: 2.1 bits up and 6.4 back at a tenth.
  EXPECT_NEAR(Bits({.density = 0.1}, 4), 2.1 + 6.4, 0.2);
  EXPECT_NEAR(Bits({.density = 0.3}, 4), 5.8 + 13.0, 0.6);
  EXPECT_NEAR(Bits({.density = 0.45, .value_bits = 8}, 4), 4.6 + 7.8, 0.4);
  // tests/bench/exchange_speed, in fp8: 12.3 MiB a rank and step, of 13.9 M parameters.
  EXPECT_NEAR(Bits({.density = 0.572, .value_bits = 5.7}, 4), 9.9, 0.4);
}

TEST(CompressedBytes, OfEverythingIsEverything) {
  EXPECT_DOUBLE_EQ(CompressedBytes({.density = 1, .value_bits = 32}, 4, 4000), 4000);
  EXPECT_DOUBLE_EQ(CompressedBytes({.density = 1, .value_bits = 16}, 4, 4000), 2000);
}

TEST(CompressedBytes, FourBitsThroughZstdAreFewerAndTakeMore) {
  CompressionRequest packed{.density = 1, .value_bits = 4.125, .packed = true};
  const double bits = Bits(packed, 4), seconds = CompressionSeconds(packed, 4, 1e6, 1e10);
  packed.zstd = true;
  // tests/bench/exchange_speed, four ranks: 8.46 MiB instead of 10.32 a step.
  EXPECT_NEAR(Bits(packed, 4) / bits, 8.46 / 10.32, 0.02);
  // An element is written once and read twice, on a processor that copies 10.4 GB/s.
  EXPECT_NEAR(CompressionSeconds(packed, 4, 1e6, 1.04e10),
              seconds / 1.04 + 250e3 * (.53e-9 + 2 * .39e-9), 4e-6);
  packed.gathered_bits = 16;
  EXPECT_NEAR(CompressionSeconds(packed, 4, 1e6, 1.04e10),
              seconds / 1.04 + 250e3 * (.53e-9 + .39e-9), 4e-6);
}

TEST(CompressedBytes, ShardedOptimizersGatherParametersInstead) {
  EXPECT_NEAR(Bits({.density = 0.1, .gathered_bits = 32}, 4), 2.1 + 32, 0.1);
}

TEST(CompressedBytes, ASketchGrowsWithWhatAnyRankSelects) {
  const CompressionRequest sketch{.sketch = true, .density = 0.1};
  EXPECT_NEAR(Bits(sketch, 1), 2 * (1 + 1.23 * 32 * 0.1), 1e-9);
  EXPECT_GT(Bits(sketch, 4), 3 * Bits(sketch, 1) * 0.9);
}

TEST(CompressedBytes, LocalStepsSumThreeArenasARound) {
  EXPECT_DOUBLE_EQ(CompressedBytes({.local_steps = 16}, 4, 1600), 300);
  EXPECT_DOUBLE_EQ(CompressionSeconds({.local_steps = 3}, 4, 1e6, 1e9), 3e-3);
}

TEST(CompressionSeconds, FollowsMemoryAndBytes) {
  const CompressionRequest topk{.density = 0.1};
  EXPECT_DOUBLE_EQ(CompressionSeconds(topk, 4, 2e6, 1e10),
                   2 * CompressionSeconds(topk, 4, 1e6, 1e10));
  EXPECT_DOUBLE_EQ(CompressionSeconds(topk, 4, 1e6, 5e9),
                   2 * CompressionSeconds(topk, 4, 1e6, 1e10));
  EXPECT_LT(CompressionSeconds({.density = 1, .value_bits = 4.125, .packed = true}, 4, 1e6, 1e10),
            CompressionSeconds(topk, 4, 1e6, 1e10) / 5)
      << "nothing is selected";
  EXPECT_GT(CompressionSeconds({.sketch = true, .density = 0.1}, 4, 1e6, 1e10),
            5 * CompressionSeconds(topk, 4, 1e6, 1e10));
}

}  // namespace
}  // namespace adaptive_train::compression_test
