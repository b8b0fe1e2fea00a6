// Locks on folders: one at a time, waited for where asked, done without where a file system has
// none.
#include "launcher/run/folder_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include <cerrno>
#include <optional>
#include <thread>
#include <vector>

#include "tests/unit/launcher/temporary_folder.h"

namespace {

/// What flock(2) fails with; 0: it does what it does.
int flock_error = 0;

}  // namespace

extern "C" int __real_flock(int file, int operation);
extern "C" int __wrap_flock(int file, int operation) {
  if (flock_error == 0) return __real_flock(file, operation);
  errno = flock_error;
  return -1;
}

namespace adaptive_train::folder_lock_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class FolderLockTest : public testing::Test {
 protected:
  ~FolderLockTest() override { flock_error = 0; }
  FolderLockRequest Request(std::chrono::milliseconds patience = {}) {
    return {folder_.Path(), "a folder", "name another", patience,
            [this](const std::string& line) { notices_.push_back(line); }};
  }
  test::TemporaryFolder folder_;
  std::vector<std::string> notices_;
};

TEST_F(FolderLockTest, IsHeldByOneAtATime) {
  {
    const auto first = FolderLock::Take(Request());
    ASSERT_TRUE(first) << first.error().message;
    const auto second = FolderLock::Take(Request());
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().exit_code, ExitCode::kPreflight);
    EXPECT_EQ(second.error().message, "a folder: " + folder_.Path() +
                                          " is in use by another adaptive-train run; name another");
  }
  EXPECT_TRUE(FolderLock::Take(Request()));
  EXPECT_THAT(notices_, IsEmpty());
}

TEST_F(FolderLockTest, IsWaitedForWithALine) {
  std::optional<FolderLock> first(std::move(FolderLock::Take(Request()).value()));
  std::thread holder([&first] {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    first.reset();
  });
  EXPECT_TRUE(FolderLock::Take(Request(std::chrono::seconds(60))));
  holder.join();
  EXPECT_THAT(notices_, ElementsAre(HasSubstr("waiting 60 s")));
}

TEST_F(FolderLockTest, IsNotWaitedForForEver) {
  const auto first = FolderLock::Take(Request());
  EXPECT_FALSE(FolderLock::Take(Request(std::chrono::milliseconds(300))));
  EXPECT_THAT(notices_, ElementsAre(HasSubstr("waiting")));
}

TEST_F(FolderLockTest, WhereTheFileSystemHasNoLocksItIsDoneWithoutAndSaid) {
  for (const int error : {ENOLCK, ENOSYS, EOPNOTSUPP}) {
    flock_error = error;
    notices_.clear();
    EXPECT_TRUE(FolderLock::Take(Request())) << error;
    EXPECT_THAT(notices_, ElementsAre(HasSubstr("cannot be locked"))) << error;
  }
  flock_error = EIO;
  EXPECT_FALSE(FolderLock::Take(Request()));
}

}  // namespace
}  // namespace adaptive_train::folder_lock_test
