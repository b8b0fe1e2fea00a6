// Profiles survive a round trip, impossible measurements are refused; confidence.
#include "core/profile.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

namespace adaptive_train::profile_test {
namespace {

Profile Small() {
  Profile profile;
  const Evidence evidence{3, 0.05, 1.7e9};
  profile.links = {{"n1", "n2", 5e-5, 1.25e8, evidence}};
  profile.devices = {{"n1", "cpu", 1e11, 8e9, evidence}, {"", "cpu", 1e11, 8e9, evidence, 2e-9}};
  profile.layers = {{"cpu", "gpt2", "block", 4, 0.01, 0.02, 0.008, 0.001, 0.5, evidence}};
  profile.nodes = {{"n2", 1.5}};
  return profile;
}

TEST(Profile, ReadsBackWhatWasWritten) {
  auto back = ProfileFromJson(ToJson(Small()));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(ToJson(*back), ToJson(Small()));
}

TEST(Profile, RefusesWhatCannotHaveBeenMeasured) {
  const std::function<void(Profile&)> changes[] = {
      [](Profile& p) { p.links[0].bytes_per_second = 0; },
      [](Profile& p) { p.links[0].bytes_per_second = std::numeric_limits<double>::quiet_NaN(); },
      [](Profile& p) { p.links[0].latency_s = -1; },
      [](Profile& p) { p.links[0].evidence.count = 0; },
      [](Profile& p) { p.devices[0].product_flops = std::numeric_limits<double>::infinity(); },
      [](Profile& p) { p.devices[0].transfer_s_per_byte = -1; },
      [](Profile& p) { p.layers[0].forward_s = 0; },
      [](Profile& p) { p.layers[0].weight_gradients_s = -1; },
      [](Profile& p) { p.layers[0].micro_batch = 0; },
      [](Profile& p) { p.nodes[0].failures = -1; },
  };
  for (const auto& change : changes) {
    Profile profile = Small();
    change(profile);
    auto back = ProfileFromJson(ToJson(profile));
    ASSERT_FALSE(back);
    EXPECT_EQ(back.error().message.find('\n'), std::string::npos);
  }
  for (const char* text : {"", "{}", "[1]", "{\"format_version\": 1, \"links\": 3}"})
    EXPECT_FALSE(ProfileFromJson(text)) << text;
}

TEST(Evidence, ConfidenceRisesWithCountsAndFallsWithSpreadAndAge) {
  const double now = 1e9;
  const Evidence one{1, 0, now};
  EXPECT_DOUBLE_EQ(one.Confidence(now), 0.5);
  EXPECT_GT((Evidence{4, 0, now}.Confidence(now)), one.Confidence(now));
  EXPECT_LT((Evidence{4, 0.5, now}.Confidence(now)), (Evidence{4, 0, now}.Confidence(now)));
  EXPECT_NEAR(one.Confidence(now + kConfidenceHalfLife), 0.25, 1e-12);
  EXPECT_DOUBLE_EQ(one.Confidence(now - 100), 0.5);  // a clock that was set back
  EXPECT_EQ(Evidence{}.Confidence(now), 0);
}

}  // namespace
}  // namespace adaptive_train::profile_test
