// When memory is saved, and what comes of a worker that does it, does not, or hangs.
#include "launcher/run/memory_save.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/unit/launcher/temporary_folder.h"

namespace adaptive_train::memory_save_test {
namespace {

RunOutcome FailedAs(FailureKind kind) {
  RunOutcome outcome;
  outcome.code = ExitCode::kRankFailure;
  outcome.failure.emplace().failure.kind = kind;
  return outcome;
}

TEST(NeedsMemory, WhereRanksEndedWithoutASaveAndNothingSpeaksAgainstTheirState) {
  EXPECT_TRUE(NeedsMemory(FailedAs(FailureKind::kNodeSilent)));
  EXPECT_TRUE(NeedsMemory(FailedAs(FailureKind::kKilled)));
  EXPECT_FALSE(NeedsMemory(FailedAs(FailureKind::kDiverged)));
  EXPECT_FALSE(NeedsMemory(FailedAs(FailureKind::kDiskFull)));
  RunOutcome outcome;
  EXPECT_FALSE(NeedsMemory(outcome)) << "done, or saved";
  outcome.unsaved = true;
  EXPECT_TRUE(NeedsMemory(outcome));
  outcome.at_once = true;
  EXPECT_FALSE(NeedsMemory(outcome)) << "a person waits";
}

class SaveFromMemoryTest : public testing::Test {
 protected:
  /// With a worker that is this script.
  Result<std::int64_t> Save(const std::string& script) {
    std::ofstream(save_.worker) << "#!/bin/sh\n" << script << "\n";
    std::filesystem::permissions(save_.worker, std::filesystem::perms::owner_all);
    return SaveFromMemory(save_);
  }

  test::TemporaryFolder home_;
  MemorySave save_{.worker = home_.Path() + "/worker",
                   .run_dir = "/run",
                   .kept = "/kept",
                   .least = 3,
                   .committed = 120};
};

TEST_F(SaveFromMemoryTest, GivesTheStepThatTheWorkerHasSaved) {
  EXPECT_EQ(Save("printf '...\\n%s\\n' $5").value(), 120);
  EXPECT_EQ(Save("printf '\\n%s\\n' $4").value(), 3);
}

TEST_F(SaveFromMemoryTest, SaysWhyNothingWasSaved) {
  EXPECT_EQ(Save("echo \"$3: other nodes have parts of it\" >&2; exit 14").error().message,
            "/kept: other nodes have parts of it");
  EXPECT_EQ(Save("exit 3").error().message, "the worker ended: exit code 3");
  EXPECT_EQ(Save("printf ...").error().message, "the worker did not say what it has saved");
}

TEST_F(SaveFromMemoryTest, AWorkerThatHangsIsLeft) {
  save_.patience = std::chrono::seconds(1);
  EXPECT_EQ(Save("printf .; sleep 600").error().message,
            "nothing was written for 1 s (checkpoint.patience_s)");
  save_.patience = std::chrono::seconds(600);
  save_.end_s = 0.1;
  EXPECT_EQ(Save("printf .; sleep 600").error().message, "the job's time was over");
}

}  // namespace
}  // namespace adaptive_train::memory_save_test
