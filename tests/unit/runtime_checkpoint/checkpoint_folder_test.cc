// Checkpoints: whole or not there, whatever stops the writer and whatever became of the files.
#include "runtime/checkpoint/checkpoint_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>

namespace adaptive_train {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// Arenas with values that tell step and place.
struct Arenas {
  explicit Arenas(const ParameterLayout& layout, float first = 0)
      : p(static_cast<std::size_t>(layout.size())), m(p.size()), v(p.size()) {
    std::iota(p.begin(), p.end(), first);
    std::iota(m.begin(), m.end(), first + 1);
    std::iota(v.begin(), v.end(), first + 2);
  }
  TrainingState State(std::int64_t step) { return {step, step - 1, "identity", p, m, v}; }
  std::vector<float> p, m, v;
};

class CheckpointTest : public testing::Test {
 protected:
  CheckpointTest() : dims_{1, 2, 8, 4, 256, true}, layout_(dims_, StageSlice::Whole(dims_)) {}
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "checkpoint_test.XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    path_ = pattern;
  }
  void TearDown() override { fs::remove_all(path_); }
  std::vector<std::string> Entries() {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(path_))
      names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }
  ModelDims dims_;
  ParameterLayout layout_;
  std::string path_;
};

TEST_F(CheckpointTest, ReadsBackEveryBit) {
  const CheckpointFolder folder(path_, 2);
  EXPECT_FALSE(folder.Newest());
  Arenas written(layout_, 5), read(layout_);
  ASSERT_TRUE(folder.Write(layout_, written.State(7)));
  EXPECT_EQ(folder.Newest(), 7);
  TrainingState state = read.State(0);
  auto done = folder.Read(layout_, 7, state);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(state.step, 7);
  EXPECT_EQ(state.updates, 6);
  EXPECT_EQ(read.p, written.p);
  EXPECT_EQ(read.m, written.m);
  EXPECT_EQ(read.v, written.v);
}

TEST_F(CheckpointTest, KeepsTheNewest) {
  const CheckpointFolder folder(path_, 2);
  for (std::int64_t step : {1, 2, 10})
    ASSERT_TRUE(folder.Write(layout_, Arenas(layout_).State(step)));
  EXPECT_THAT(Entries(), testing::ElementsAre("step-00000002", "step-00000010"));
}

TEST_F(CheckpointTest, RefusesWhatIsNotWholeOrNotOurs) {
  const CheckpointFolder folder(path_, 9);
  Arenas arenas(layout_);
  auto refusal = [&] {
    TrainingState state = arenas.State(0);
    auto done = folder.Read(layout_, 1, state);
    return done ? std::string("accepted") : done.error().message;
  };
  const auto path = *folder.Write(layout_, arenas.State(1));
  ModelDims other = dims_;
  other.vocab = 300;
  TrainingState state = arenas.State(0);
  EXPECT_THAT(
      folder.Read(ParameterLayout(other, StageSlice::Whole(other)), 1, state).error().message,
      HasSubstr("another model"));
  state = arenas.State(0);
  state.identity = "other";
  EXPECT_THAT(folder.Read(layout_, 1, state).error().message, HasSubstr("was made with"));
  {
    std::fstream file(path + "/state.bin", std::ios::in | std::ios::out);
    file.seekp(100);
    file.put('\x55');
  }
  EXPECT_THAT(refusal(), HasSubstr("does not fit the hash"));
  fs::resize_file(path + "/state.bin", 50);
  EXPECT_THAT(refusal(), HasSubstr("shorter than"));
  std::ofstream(path + "/manifest.json") << "{\"format_version\": 99}";
  EXPECT_THAT(refusal(), HasSubstr("format_version 99"));
  std::ofstream(path + "/manifest.json") << "garbage";
  EXPECT_THAT(refusal(), HasSubstr("manifest.json"));
  fs::remove(path + "/DONE");
  EXPECT_FALSE(folder.Newest());
}

TEST_F(CheckpointTest, AFullDiskLeavesTheOneBefore) {
  const CheckpointFolder folder(path_, 1);
  ASSERT_TRUE(folder.Write(layout_, Arenas(layout_, 1).State(1)));
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = 5000;
  ::signal(SIGXFSZ, SIG_IGN);
  ::setrlimit(RLIMIT_FSIZE, &small);
  auto written = folder.Write(layout_, Arenas(layout_, 2).State(2));
  ::setrlimit(RLIMIT_FSIZE, &before);
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().exit_code, ExitCode::kRankFailure);
  EXPECT_THAT(Entries(), testing::ElementsAre("step-00000001"));
}

TEST_F(CheckpointTest, AWriterKilledAtAnyMomentLeavesAWholeOne) {
  const CheckpointFolder folder(path_, 2);
  ASSERT_TRUE(folder.Write(layout_, Arenas(layout_, 0).State(1)));
  for (int round = 0; round < 40; ++round) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      for (std::int64_t step = *folder.Newest() + 1;; ++step) {
        if (!folder.Write(layout_, Arenas(layout_, static_cast<float>(step)).State(step)))
          ::_exit(1);
      }
    }
    ::usleep(static_cast<useconds_t>(500 + round * 531 % 9000));
    ::kill(pid, SIGKILL);
    int status = 0;
    ::waitpid(pid, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status));
    const auto newest = folder.Newest();
    ASSERT_TRUE(newest);
    Arenas read(layout_);
    TrainingState state = read.State(0);
    auto done = folder.Read(layout_, *newest, state);
    ASSERT_TRUE(done) << done.error().message;
    EXPECT_EQ(read.p[3], static_cast<float>(*newest == 1 ? 0 : *newest) + 3);
  }
}

}  // namespace
}  // namespace adaptive_train
