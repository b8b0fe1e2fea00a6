// The service's copies of its database.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/unit/db_service/service_fixture.h"

namespace adaptive_train::backups_test {
namespace {

using ::testing::HasSubstr;

class BackupsTest : public ServiceTest {};

/// The names of copies in the folder, in order.
std::vector<std::string> CopiesIn(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none))
    if (entry.path().extension() == ".db") names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

TEST_F(BackupsTest, ADaysCopyIsADatabaseAndTheOldestAreRemoved) {
  const auto folder = folder_ / "backups";
  std::filesystem::create_directory(folder);
  for (const char* const name : {"profiles-20200101T000000Z.db", "profiles-20200102T000000Z.db",
                                 "profiles-20990103T000000Z.db", "profiles-mine.db"})
    std::ofstream(folder / name) << "old";
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    std::filesystem::last_write_time(
        entry.path(), std::filesystem::file_time_type::clock::now() - std::chrono::hours(30));
  {
    auto file = FileStore::Open(Location());
    ASSERT_TRUE(file && file->BeginJob(SampleJob())) << file.error().message;
  }
  Start({"--backup-to", folder.string(), "--backups-kept", "2"});
  for (int i = 0; i < 600 && CopiesIn(folder).size() != 3; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const auto copies = CopiesIn(folder);
  ASSERT_EQ(copies.size(), 3u);
  EXPECT_EQ(copies[1], "profiles-20990103T000000Z.db") << "by a clock that was set back";
  EXPECT_EQ(copies[2], "profiles-mine.db") << "it is nobody's to remove";
  EXPECT_TRUE(Connected().BeginJob(SampleJob()));
  EXPECT_EQ(std::filesystem::status(folder / copies[0]).permissions(),
            std::filesystem::perms(0600));
  EXPECT_EQ(End(SIGTERM), 0);
  ASSERT_EQ(NextState(), "STOPPING=1");
  {
    auto copy = FileStore::Open(StoreLocation{folder / copies[0]});
    ASSERT_TRUE(copy) << copy.error().message;
    EXPECT_EQ(copy->FindJobs(EveryJob()).value().size(), 1u);
  }
  Start({"--backup-to", folder.string(), "--backups-kept", "2"});
  ASSERT_TRUE(Connected().MeasuredClusters());
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_EQ(CopiesIn(folder), copies) << "a day has not passed";
}

TEST_F(BackupsTest, ABackupThatCannotBeMadeIsToldAndHarmsNobody) {
  std::ofstream(folder_ / "backups") << "no folder";
  testing::internal::CaptureStderr();
  Start({"--backup-to", (folder_ / "backups").string()});
  EXPECT_TRUE(Connected().BeginJob(SampleJob()));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_EQ(End(SIGTERM), 0);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("no copy of the database is made in"));
}

}  // namespace
}  // namespace adaptive_train::backups_test
