// Folders of local steps: each goes with its process, or at the next start.
#include "launcher/steps/step_folder.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/unit/launcher/temporary_folder.h"

namespace adaptive_train::step_folder_test {
namespace {

namespace fs = std::filesystem;

class StepFolderTest : public testing::Test {
 protected:
  StepFolderTest() { setenv("TMPDIR", folder_.Path().c_str(), 1); }
  ~StepFolderTest() override { unsetenv("TMPDIR"); }

  /// A process that holds a folder with a file in it until it is killed.
  static pid_t StartHolder() {
    int ready[2];
    EXPECT_EQ(::pipe(ready), 0);
    const pid_t holder = ::fork();
    if (holder == 0) {
      auto made = StepFolder::Make();
      if (!made) ::_exit(1);
      fs::create_directory(made->Path() + "/pmix");
      std::ofstream(made->Path() + "/pmix/file") << "x";
      if (::write(ready[1], "y", 1) != 1) ::_exit(1);
      for (;;) ::pause();
    }
    char answer = 0;
    EXPECT_EQ(::read(ready[0], &answer, 1), 1);
    ::close(ready[0]);
    ::close(ready[1]);
    return holder;
  }
  static void Kill(pid_t holder) {
    ::kill(holder, SIGKILL);
    EXPECT_EQ(::waitpid(holder, nullptr, 0), holder);
  }
  std::size_t Entries() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder_.Path()), fs::directory_iterator()));
  }

  test::TemporaryFolder folder_;
};

TEST_F(StepFolderTest, GoesWithItsOwner) {
  {
    auto made = StepFolder::Make();
    ASSERT_TRUE(made) << made.error().message;
    std::ofstream(made->Path() + "/file") << "x";
    EXPECT_EQ(Entries(), 1u);
    const StepFolder moved = std::move(*made);
    EXPECT_TRUE(fs::exists(moved.Path()));
  }
  EXPECT_EQ(Entries(), 0u);
}

TEST_F(StepFolderTest, OfAKilledProcessGoesAtTheNextStart) {
  const pid_t dead = StartHolder(), living = StartHolder();
  EXPECT_EQ(Entries(), 2u);
  Kill(dead);
  EXPECT_EQ(Entries(), 2u);
  {
    auto made = StepFolder::Make();
    ASSERT_TRUE(made) << made.error().message;
    EXPECT_EQ(Entries(), 2u);  // the living one's and this
  }
  EXPECT_EQ(Entries(), 1u);
  Kill(living);
  ASSERT_TRUE(StepFolder::Make());
  EXPECT_EQ(Entries(), 0u);
}

TEST_F(StepFolderTest, NothingElseIsTouched) {
  const fs::path temporary = folder_.Path();
  fs::create_directories(temporary / "precious");
  std::ofstream(temporary / "precious/file") << "x";
  fs::create_directory_symlink(temporary / "precious", temporary / "adaptive-train-step-aaaaaa");
  std::ofstream(temporary / "adaptive-train-step-bbbbbb") << "a file";
  fs::create_directory(temporary / "adaptive-train-other-cccccc");
  ASSERT_TRUE(StepFolder::Make());
  EXPECT_EQ(Entries(), 4u);
  // Links in a folder that is left behind go, what they name stays.
  const fs::path left = temporary / "adaptive-train-step-dddddd";
  fs::create_directory(left);
  fs::create_directory_symlink(temporary / "precious", left / "link");
  RemoveLeftSteps(folder_.Path(), ::geteuid() + 1);
  EXPECT_TRUE(fs::exists(left));  // another user's
  RemoveLeftSteps(folder_.Path(), ::geteuid());
  EXPECT_FALSE(fs::exists(left));
  EXPECT_TRUE(fs::exists(temporary / "precious/file"));
}

TEST_F(StepFolderTest, NoTemporaryFolderIsAnError) {
  setenv("TMPDIR", "/nonexistent/folder", 1);
  const auto made = StepFolder::Make();
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().exit_code, ExitCode::kPreflight);
  EXPECT_NE(made.error().message.find("TMPDIR"), std::string::npos);
}

}  // namespace
}  // namespace adaptive_train::step_folder_test
