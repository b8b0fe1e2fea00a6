// What a run writes of its steps outlives another client of a network file system that removes it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <string>

#include "core/file_io.h"
#include "launcher/run/metrics_writer.h"
#include "tests/unit/launcher/event_records.h"
#include "tests/unit/launcher/temporary_folder.h"

namespace {

/// Files with this in their paths are removed as they are written, so many times, and are stale
/// then. Set while nothing is written.
std::string g_of_path;
int g_writes = 0, g_closes = 0;

/// Whether the file is stale now.
bool Removed(int file, int& times) {
  std::error_code error;
  const std::string path =
      std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(file), error);
  if (times == 0 || error || path.find(g_of_path) == std::string::npos) return false;
  --times;
  std::filesystem::remove(path);
  return true;
}

}  // namespace

extern "C" ssize_t __real_write(int file, const void* from, size_t size);
extern "C" ssize_t __wrap_write(int file, const void* from, size_t size) {
  if (!Removed(file, g_writes)) return __real_write(file, from, size);
  errno = ESTALE;
  return -1;
}

extern "C" int __real_close(int file);
extern "C" int __wrap_close(int file) {
  const bool stale = Removed(file, g_closes);
  const int closed = __real_close(file);
  if (!stale) return closed;
  errno = ESTALE;
  return -1;
}

namespace adaptive_train::stale_files_test {
namespace {

constexpr std::chrono::seconds kDeadline{20};

StepMetrics Step(std::int64_t step) {
  StepMetrics metrics;
  metrics.step = step;
  return metrics;
}

class StaleFiles : public testing::Test {
 protected:
  ~StaleFiles() override { g_writes = g_closes = 0; }

  /// Two steps, of which the second meets what `times` says.
  Result<void> TwoSteps(const std::string& of_path, int& times, int count) {
    MetricsWriter writer(*folder_);
    EXPECT_TRUE(writer.Add(Step(1)));
    EXPECT_TRUE(writer.Finish(kDeadline));
    g_of_path = of_path;
    times = count;
    (void)writer.Add(Step(2));
    return writer.Finish(kDeadline);
  }
  std::string Lines() const { return *ReadFile(root_.Path() + "/metrics.jsonl", 1 << 20); }

  test::TemporaryFolder root_;
  Result<RunFolder> folder_ = RunFolder::Open(root_.Path());
};

TEST_F(StaleFiles, LinesGoIntoANewFile) {
  const auto done = TwoSteps("metrics.jsonl", g_writes, 1);
  EXPECT_TRUE(done) << done.error().message;
  EXPECT_EQ(Lines(), MetricsLine(Step(2)) + "\n");
}

TEST_F(StaleFiles, LinesThatAreRefusedOnlyAtTheEndGoIntoANewFile) {
  const auto done = TwoSteps("metrics.jsonl", g_closes, 1);
  EXPECT_TRUE(done) << done.error().message;
  EXPECT_EQ(Lines(), MetricsLine(Step(2)) + "\n");
}

TEST_F(StaleFiles, EventsGoIntoANewFile) {
  const auto done = TwoSteps("/tensorboard/", g_writes, 1);
  EXPECT_TRUE(done) << done.error().message;
  const std::filesystem::directory_iterator files(root_.Path() + "/tensorboard");
  const auto events = test::ParseEvents(*ReadFile(files->path(), 1 << 20));
  EXPECT_EQ(events.back().step, 2);
  EXPECT_EQ(std::distance(begin(files), end(files)), 1);
}

TEST_F(StaleFiles, AFileThatIsAlwaysStaleIsAnError) {
  const auto done = TwoSteps("metrics.jsonl", g_writes, 2);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().system_error, ESTALE);
  EXPECT_NE(done.error().message.find("metrics.jsonl: Stale file handle"), std::string::npos);
}

}  // namespace
}  // namespace adaptive_train::stale_files_test
