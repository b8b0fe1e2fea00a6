// One suite over device x scalar: every operation against the float64 reference, and against itself
// with more threads.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_device.h"
#include "kernels/reference/reference_device.h"
#include "tests/unit/kernels/operation_cases.h"

namespace adaptive_train::kernels {
namespace {

/// How far float32 may be from the float64 reference, relative to the largest expected value or 1.
const std::map<std::string, double> kTolerance{
    {"matmul", 2e-6},      {"bias_backward", 2e-6}, {"layer_norm", 4e-6},    {"gelu", 2e-6},
    {"attention", 4e-6},   {"embedding", 3e-6},     {"cross_entropy", 2e-6}, {"adamw", 2e-6},
    {"elementwise", 2e-7}, {"reduction", 1e-12},
};

struct Candidate {
  std::string name;
  std::unique_ptr<Device<float>> device;
};

std::vector<Candidate> Candidates() {
  std::vector<Candidate> all;
  all.push_back({"reference float", std::make_unique<reference::ReferenceDevice<float>>()});
  for (const int threads : {1, 2, 5}) {
    all.push_back({"cpu " + std::to_string(threads), std::make_unique<cpu::CpuDevice>(threads)});
  }
  return all;
}

void ExpectClose(const Arrays& expected, const Arrays& actual, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(expected.size(), actual.size()) << what;
  for (std::size_t output = 0; output < expected.size(); ++output) {
    ASSERT_EQ(expected[output].size(), actual[output].size()) << what;
    double largest = 1, worst = 0;
    for (const double value : expected[output]) largest = std::max(largest, std::abs(value));
    for (std::size_t i = 0; i < expected[output].size(); ++i) {
      ASSERT_TRUE(std::isfinite(actual[output][i])) << what << ", output " << output << " at " << i;
      worst = std::max(worst, std::abs(expected[output][i] - actual[output][i]));
    }
    EXPECT_LE(worst, tolerance * largest) << what << ", output " << output;
  }
}

TEST(Devices, AgreeWithTheFloat64Reference) {
  reference::ReferenceDevice<double> oracle;
  std::vector<Candidate> candidates = Candidates();
  int number = 0;
  ForEachCase([&](const std::string& operation, const auto& a_case) {
    const Arrays inputs = a_case.Inputs(), expected = a_case.Run(oracle, inputs);
    for (Candidate& candidate : candidates) {
      ExpectClose(expected, a_case.Run(*candidate.device, inputs), kTolerance.at(operation),
                  operation + ", case " + std::to_string(number) + ", " + candidate.name);
    }
    ++number;
  });
  EXPECT_GT(number, 150);
}

TEST(Devices, CpuGivesTheSameBitsWithAnyNumberOfThreads) {
  cpu::CpuDevice one(1);
  ForEachCase([&](const std::string& operation, const auto& a_case) {
    const Arrays inputs = a_case.Inputs(), expected = a_case.Run(one, inputs);
    for (const int threads : {1, 2, 5}) {
      cpu::CpuDevice several(threads);
      EXPECT_EQ(expected, a_case.Run(several, inputs))
          << operation << " with " << threads << " threads";
    }
  });
}

template <class T>
std::vector<T> Losses(Device<T>& device, const Array& logits) {
  Buffer<T> on_device = ToDevice(device, logits), losses(device, 1);
  const Buffer<std::int32_t> targets = TokensToDevice(device, {0});
  device.CrossEntropy({.rows = 1,
                       .classes = static_cast<std::int64_t>(logits.size()),
                       .logits = on_device.data(),
                       .targets = targets.data(),
                       .losses = losses.data(),
                       .d_logits = on_device.data()});
  std::vector<T> host(1);
  losses.CopyToHost(host);
  return host;
}

TEST(Devices, LossOfALogitThatIsNotFiniteIsNotFinite) {
  for (const Candidate& candidate : Candidates()) {
    for (std::size_t at : {0U, 1U, 20U}) {
      Array logits(33, 0.5);
      EXPECT_TRUE(std::isfinite(Losses(*candidate.device, logits)[0])) << candidate.name;
      logits[at] = std::numeric_limits<double>::quiet_NaN();
      EXPECT_FALSE(std::isfinite(Losses(*candidate.device, logits)[0]))
          << candidate.name << ", NaN at " << at;
      logits[at] = std::numeric_limits<double>::infinity();
      EXPECT_FALSE(std::isfinite(Losses(*candidate.device, logits)[0]))
          << candidate.name << ", infinity at " << at;
    }
  }
}

TEST(Devices, SumsPassOnWhatIsNotFinite) {
  for (const Candidate& candidate : Candidates()) {
    Array values(20000, 1.0);
    values[19000] = std::numeric_limits<double>::quiet_NaN();
    const Buffer<float> buffer = ToDevice(*candidate.device, values);
    EXPECT_TRUE(std::isnan(candidate.device->SquaredNorm(20000, buffer.data()))) << candidate.name;
    EXPECT_TRUE(std::isnan(candidate.device->Sum(20000, buffer.data()))) << candidate.name;
    EXPECT_EQ(19000, candidate.device->Sum(19000, buffer.data())) << candidate.name;
  }
}

TEST(Devices, SayWhatTheyAre) {
  EXPECT_NE(std::string::npos, cpu::CpuDevice(2).Description().find("2 threads, oneDNN"));
  EXPECT_NE(std::string::npos, cpu::CpuDevice(1).Description().find("1 thread, oneDNN"));
  EXPECT_NE(std::string::npos, reference::ReferenceDevice<double>().Description().find("float64"));
}

}  // namespace
}  // namespace adaptive_train::kernels
