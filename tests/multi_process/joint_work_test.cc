// Work that ranks do together: waited for while it moves, given up where it stands still, and then
// without harm to anything.
#include "runtime/train/joint_work.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "kernels/host_memory.h"
#include "runtime/fatal_error.h"
#include "runtime/train/checkpointer.h"
#include "tests/multi_process/forked_ranks.h"

namespace {

std::atomic<int> manifests_read{0};
/// The manifest, counted from 1, whose reading stands still; 0: none does.
std::atomic<int> stands_still_at{0};
std::atomic<bool> goes_on{false};
std::atomic<pid_t> reader{0};  // the thread that stands still

bool IsManifest(int file) {
  std::error_code ignored;
  const auto path = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(file), ignored);
  return path.filename() == "manifest.json";
}

}  // namespace

extern "C" ssize_t __real_read(int file, void* bytes, std::size_t size);
/// A file server that answers late.
extern "C" ssize_t __wrap_read(int file, void* bytes, std::size_t size) {
  const ssize_t got = __real_read(file, bytes, size);
  if (got > 0 && IsManifest(file) && ++manifests_read == stands_still_at) {
    reader = ::gettid();
    while (!goes_on) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return got;
}

namespace adaptive_train::joint_work_test {
namespace {

TEST(JointWork, IsWaitedForAsLongAsItMovesAndEndsAlikeForAll) {
  Ranks ranks(3, [](Group& c) {
    const auto outcome =
        DoJointly(c, std::chrono::seconds(2), "a test", [&](auto& done) -> Result<void> {
          // Rank 1 alone has something to do, for longer than patience.
          for (int i = 0; c.Rank() == 1 && i < 150; ++i) {
            std::this_thread::sleep_for(std::chrono::milliseconds(30));
            ++done;
          }
          if (c.Rank() > 0)
            return Fail("rank " + std::to_string(c.Rank()) + " has failed", ExitCode::kRankFailure,
                        c.Rank() == 1 ? EDQUOT : EIO);
          return {};
        });
    RANK_REQUIRE(!outcome);
    RANK_REQUIRE(outcome.error().message == "rank 1 has failed", outcome.error().message);
    RANK_REQUIRE(outcome.error().system_error == EDQUOT);
    return true;
  });
  EXPECT_TRUE(ranks.AllGood());
}

TEST(JointWork, ThatStandsStillIsGivenUp) {
  Ranks ranks(2, [](Group& c) {
    try {
      (void)DoJointly(c, std::chrono::seconds(1), "a test", [&](auto& done) -> Result<void> {
        ++done;
        if (c.Rank() == 1) ::pause();
        return {};
      });
    } catch (const FatalError& error) {
      RANK_REQUIRE(error.Cause() == "nothing moved for 1 s (checkpoint.patience_s)", error.Cause());
      return true;
    }
    RANK_REQUIRE(!"ended without a failure");
    return true;
  });
  // The ranks find out in the same look, or one of them by the other's end.
  const bool first = ranks.Join(0) == 0, second = ranks.Join(1) == 0;
  EXPECT_TRUE(first || second);
}

/// Runs in a folder of its own.
class GivenUpTest : public testing::Test {
 protected:
  GivenUpTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "joint_work.XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("cannot make a folder");
    config_.model.layers = 1;
    config_.model.hidden = 16;
    config_.model.sequence = 8;
    config_.checkpoint.dir = pattern;
  }
  ~GivenUpTest() override { std::filesystem::remove_all(config_.checkpoint.dir); }

  Config config_;
};

/// What a rank that resumes is made of; it lives until the process ends, as a worker's parts do.
struct ResumingRank {
  ResumingRank(const Config& config, Group& c)
      : layout(DimsOf(config.model), StageSlice::Whole(DimsOf(config.model))),
        checkpointer(config, layout, {BucketRule::Whole(layout.size(), c.Size()), c.Rank()}, c, c,
                     events, 1, "a text") {
    events.on_saving = [](const Saving&) {};
    events.on_saved = [](const Saved&) {};
    events.on_notice = [](const std::string&) {};
    for (std::size_t arena = 0; arena < kResiduals; ++arena)
      arenas[arena].assign(static_cast<std::size_t>(layout.size()), 7.0F);
  }
  std::optional<CheckpointStep> Resume() {
    return checkpointer.Resume(Spans(), {{0, layout.size()}});
  }
  TrainingArenas Spans() { return {&memory, {arenas[0], arenas[1], arenas[2], {}}}; }

  TrainerEvents events;
  const ParameterLayout layout;
  kernels::HostMemory memory;
  std::array<std::vector<float>, kResiduals> arenas;
  Checkpointer checkpointer;
};

/// Takes the stack on which the work was begun, lets the work end, and looks whether what is there
/// is still as it was.
[[gnu::noinline]] bool StackStaysAsItIs() {
  volatile unsigned char stack[1 << 16];
  for (auto& byte : stack) byte = 0x5a;
  RANK_REQUIRE(reader != 0);
  goes_on = true;
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (std::filesystem::exists("/proc/self/task/" + std::to_string(reader))) {
    RANK_REQUIRE(std::chrono::steady_clock::now() < give_up);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (const auto& byte : stack) RANK_REQUIRE(byte == 0x5a);
  return true;
}

TEST_F(GivenUpTest, ReadingThatGoesOnLaterWritesToNothingThatIsGone) {
  Ranks saving(2, [&](Group& c) {
    ResumingRank rank(config_, c);
    RANK_REQUIRE(!rank.Resume());
    rank.checkpointer.SaveNow({5, 5, CheckpointIdentity(config_), {}, {}}, rank.Spans());
    return true;
  });
  ASSERT_TRUE(saving.AllGood());
  config_.checkpoint.patience_s = 1;
  Ranks ranks(2, [&](Group& c) {
    {
      ResumingRank whole(config_, c);
      manifests_read = 0;
      RANK_REQUIRE(whole.Resume());
    }
    ResumingRank rank(config_, c);
    // The last one that Resume reads is that of reading the arenas.
    if (c.Rank() == 1) stands_still_at = manifests_read.exchange(0);
    try {
      (void)rank.Resume();
    } catch (const FatalError& error) {
      return c.Rank() == 0 || StackStaysAsItIs();
    }
    RANK_REQUIRE(!"was not given up");
    return true;
  });
  EXPECT_TRUE(ranks.Good(1));
}

}  // namespace
}  // namespace adaptive_train::joint_work_test
