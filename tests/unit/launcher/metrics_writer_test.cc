// What a run leaves for each step, over a resume and on a file system that fails.
#include "launcher/run/metrics_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <vector>

#include "core/file_io.h"
#include "tests/unit/launcher/event_records.h"
#include "tests/unit/launcher/temporary_folder.h"

namespace adaptive_train::metrics_writer_test {
namespace {

using testing::ElementsAre;

constexpr std::chrono::seconds kDeadline{20};

StepMetrics Step(std::int64_t step) {
  StepMetrics metrics;
  metrics.step = step;
  metrics.loss = 5.0 / static_cast<double>(step);
  metrics.lr = 0.5;
  metrics.peak_memory_bytes = std::int64_t{3} << 29;
  return metrics;
}

std::vector<std::string> EventFiles(const std::string& run) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(run + "/tensorboard"))
    paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::vector<test::ReadEvent> EventsOf(const std::string& path) {
  return test::ParseEvents(*ReadFile(path, 1 << 20));
}

TEST(MetricsWriter, WritesALineAndAnEventAStep) {
  test::TemporaryFolder root;
  auto folder = RunFolder::Open(root.Path());
  ASSERT_TRUE(folder);
  MetricsWriter writer(*folder);
  ASSERT_TRUE(writer.ResumeAfter(0));
  ASSERT_TRUE(writer.Add(Step(1)));
  StepMetrics second = Step(2);
  second.validation_loss = std::log(8.0);
  second.loss_z = 0.5;
  second.skipped = true;
  ASSERT_TRUE(writer.Add(second));
  ASSERT_TRUE(writer.Finish(kDeadline));
  EXPECT_EQ(*ReadFile(root.Path() + "/metrics.jsonl", 1 << 20),
            MetricsLine(Step(1)) + "\n" + MetricsLine(second) + "\n");
  const auto files = EventFiles(root.Path());
  ASSERT_EQ(files.size(), 1u);
  const auto events = EventsOf(files[0]);
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[2].step, 1);
  EXPECT_EQ(events[2].scalars.at("loss/train"), 5.0f);
  EXPECT_EQ(events[2].scalars.at("lr"), 0.5f);
  EXPECT_EQ(events[2].scalars.at("memory/peak_gib"), 1.5f);
  EXPECT_EQ(events[2].scalars.at("skipped"), 0.0f);
  for (const char* tag : {"grad_norm", "loss_scale", "throughput/tokens_per_s", "throughput/mfu",
                          "throughput/tflops", "time/step_s"})
    EXPECT_EQ(events[2].scalars.count(tag), 1u) << tag;
  EXPECT_EQ(events[2].scalars.count("loss/validation"), 0u);
  EXPECT_EQ(events[3].scalars.at("skipped"), 1.0f);
  EXPECT_EQ(events[3].scalars.at("loss/z"), 0.5f);
  EXPECT_FLOAT_EQ(events[3].scalars.at("loss/validation"), std::log(8.0f));
  EXPECT_FLOAT_EQ(events[3].scalars.at("perplexity/validation"), 8.0f);
}

TEST(MetricsWriter, AResumeCutsLinesAndStartsAFileThatPurges) {
  test::TemporaryFolder root;
  auto folder = RunFolder::Open(root.Path());
  ASSERT_TRUE(folder);
  {
    MetricsWriter writer(*folder);
    ASSERT_TRUE(writer.ResumeAfter(0));
    for (std::int64_t step = 1; step <= 5; ++step) ASSERT_TRUE(writer.Add(Step(step)));
    ASSERT_TRUE(writer.Finish(kDeadline));
  }
  MetricsWriter writer(*folder);
  ASSERT_TRUE(writer.ResumeAfter(3));
  ASSERT_TRUE(writer.Add(Step(4)));
  ASSERT_TRUE(writer.Finish(kDeadline));
  EXPECT_EQ(*ReadFile(root.Path() + "/metrics.jsonl", 1 << 20),
            MetricsLine(Step(1)) + "\n" + MetricsLine(Step(2)) + "\n" + MetricsLine(Step(3)) +
                "\n" + MetricsLine(Step(4)) + "\n");
  const auto files = EventFiles(root.Path());
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(EventsOf(files[0]).size(), 7u);  // untouched: a reader may have it open
  const auto events = EventsOf(files[1]);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[1].session_status, 1u);
  EXPECT_EQ(events[1].step, 4);
  EXPECT_EQ(events[2].step, 4);
  // The same launcher launches again.
  ASSERT_TRUE(writer.ResumeAfter(1));
  ASSERT_TRUE(writer.Add(Step(2)));
  ASSERT_TRUE(writer.Finish(kDeadline));
  ASSERT_EQ(EventFiles(root.Path()).size(), 3u);
  EXPECT_EQ(EventsOf(EventFiles(root.Path())[2])[1].step, 2);
}

TEST(MetricsWriter, NothingLeftToDoLeavesNoEventFile) {
  test::TemporaryFolder root;
  auto folder = RunFolder::Open(root.Path());
  ASSERT_TRUE(folder);
  MetricsWriter writer(*folder);
  ASSERT_TRUE(writer.ResumeAfter(9));
  ASSERT_TRUE(writer.Finish(kDeadline));
  EXPECT_FALSE(std::filesystem::exists(root.Path() + "/tensorboard"));
}

TEST(MetricsWriter, AFolderThatRefusesEventsFailsTheWrites) {
  test::TemporaryFolder root;
  auto folder = RunFolder::Open(root.Path());
  ASSERT_TRUE(folder);
  std::ofstream(root.Path() + "/tensorboard") << "in the way";
  MetricsWriter writer(*folder);
  ASSERT_TRUE(writer.Add(Step(1)));
  auto finished = writer.Finish(kDeadline);
  ASSERT_FALSE(finished);
  EXPECT_THAT(finished.error().message, testing::HasSubstr("/tensorboard"));
  EXPECT_FALSE(writer.Add(Step(2)));
}

}  // namespace
}  // namespace adaptive_train::metrics_writer_test
