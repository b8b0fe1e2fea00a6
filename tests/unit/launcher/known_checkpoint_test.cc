// What a run says that ends without saving.
#include "launcher/run/known_checkpoint.h"

#include <gtest/gtest.h>

namespace adaptive_train::known_checkpoint_test {
namespace {

TEST(KnownCheckpoint, SaysWhatIsLostWithoutASave) {
  KnownCheckpoint known;
  known.Add(Resumed{0, false});
  EXPECT_FALSE(known.Exists());
  EXPECT_EQ(known.WhatIsLost(7), "no checkpoint is known: all 7 steps are lost");
  known.Add(Resumed{10, false});
  EXPECT_EQ(known.WhatIsLost(17),
            "the newest known checkpoint is that of step 10: 7 steps after it are lost");
  known.Add(Saved{20, "runs/7/checkpoints/step-20", 1});
  known.Add(Resumed{22, true});
  EXPECT_EQ(known.WhatIsLost(25),
            "the newest known checkpoint is that of step 20: runs/7/checkpoints/step-20, 5 steps "
            "after it are lost");
  Allocation job;
  job.in_slurm = true;
  job.job_id = 7;
  EXPECT_EQ(known.HowToGoOn(25, "runs/7", job),
            "the same command with --run-dir runs/7, or adaptive-train run --continue 7, goes on "
            "from the checkpoint of step 20 (5 steps came after it)");
}

}  // namespace
}  // namespace adaptive_train::known_checkpoint_test
