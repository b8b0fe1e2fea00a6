// The table of steps: columns under their names, within the line, whatever the numbers.
#include "launcher/report/step_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <sstream>
#include <vector>

namespace adaptive_train::step_table_test {
namespace {

StepMetrics Usual() {
  StepMetrics step;
  step.step = 1234;
  step.tokens = 10000;
  step.loss = 3.14159;
  step.grad_norm = 0.98765;
  step.lr = 3e-4;
  step.step_s = 0.0812;
  step.tokens_per_s = 123456;
  step.tflops = 0.512;
  step.mfu = 0.876;
  step.peak_memory_bytes = std::int64_t{5} << 28;
  return step;
}

std::vector<std::string> Words(const std::string& line) {
  std::stringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

TEST(StepTable, ShowsEverythingInAHundredColumns) {
  const StepTable table(10000);
  EXPECT_THAT(Words(table.Header(100)),
              testing::ElementsAre("step", "tokens", "loss", "norm", "lr", "ms", "tokens/s",
                                   "TFLOP/s", "MFU", "GiB"));
  EXPECT_THAT(Words(table.Row(Usual(), 100)),
              testing::ElementsAre("1234/10000", "12.3M", "3.1416", "0.988", "3.00e-04", "81.2",
                                   "123k", "0.512", "87.6%", "1.25"));
}

TEST(StepTable, KeepsItsLayoutWhateverTheNumbers) {
  for (const std::int64_t total : {1, 60, 10000, 999999}) {
    const StepTable table(total);
    const std::size_t length = table.Header(100).size();
    EXPECT_LE(length, 100u);
    std::vector<StepMetrics> extremes(4, Usual());
    for (StepMetrics& step : extremes) step.step = total;
    extremes[0] = StepMetrics{};
    extremes[1].loss = std::nan("");
    extremes[1].grad_norm = std::numeric_limits<double>::infinity();
    extremes[2].loss = 123456.7, extremes[2].grad_norm = 0.00012, extremes[2].step_s = 912.3456;
    extremes[2].tokens = 4'000'000, extremes[2].tflops = 12345.6, extremes[2].mfu = 1.0;
    extremes[2].tokens_per_s = 98'765'432, extremes[2].peak_memory_bytes = std::int64_t{137} << 30;
    extremes[3].tflops = 1.234e-5, extremes[3].loss = 99.99999, extremes[3].grad_norm = 1.5e-8;
    for (const StepMetrics& step : extremes)
      EXPECT_EQ(table.Row(step, 100).size(), length) << table.Row(step, 100);
  }
}

TEST(StepTable, LeavesOutColumnsUntilTheLineFits) {
  const StepTable table(10000);
  std::size_t columns = 10;
  for (std::size_t width = 100; width >= 20; --width) {
    const std::string header = table.Header(width), row = table.Row(Usual(), width);
    EXPECT_LE(header.size(), width);
    EXPECT_EQ(row.size(), header.size());
    EXPECT_EQ(Words(row).size(), Words(header).size());
    EXPECT_LE(Words(header).size(), columns);
    columns = Words(header).size();
    EXPECT_THAT(Words(header), testing::Contains("loss"));
  }
  EXPECT_EQ(columns, 2u);
  EXPECT_THAT(Words(table.Header(80)), testing::IsSupersetOf({"step", "tokens", "loss", "norm",
                                                              "lr", "ms", "tokens/s", "MFU"}));
}

}  // namespace
}  // namespace adaptive_train::step_table_test
