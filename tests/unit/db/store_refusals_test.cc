// Files and places that a store must refuse, each in one line and without changing them.
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>

#include "db/database.h"
#include "tests/unit/db/fuse_mount.h"
#include "tests/unit/db/store_fixture.h"

namespace adaptive_train::store_refusals_test {
namespace {

using ::testing::AssertionResult;

AssertionResult Says(const std::string& message, const std::string& part) {
  if (message.find('\n') != message.npos)
    return ::testing::AssertionFailure() << "more than one line: " << message;
  if (message.find(part) == message.npos)
    return ::testing::AssertionFailure() << "'" << part << "' is not in: " << message;
  return ::testing::AssertionSuccess();
}

class StoreRefusals : public StoreTest {
 protected:
  /// A store with enough rows for many pages, all of them in the file itself.
  void MakeFullStore() {
    auto store = FileStore::Open(Location());
    ASSERT_TRUE(store) << store.error().message;
    JobRecord job = SampleJob();
    job.config = std::string(3000, 'x');
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(store->BeginJob(job));
  }
  void Overwrite(std::size_t offset, const std::string& bytes) {
    std::fstream file(Location().path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(offset));
    file << bytes;
  }
  std::string Log() const { return Location().path.string() + "-wal"; }
  /// As a user leaves the store who is killed. SQLite takes no content from it.
  void LeaveALog() { std::ofstream(Log()) << std::string(100, 'l'); }
  void ExpectCorrupt() {
    const std::string before = BytesOf(Location().path);
    const std::string refusal = Refusal(Location());
    EXPECT_TRUE(
        Says(refusal, "profile store " + Location().path.string() + ": the file is corrupt"));
    EXPECT_TRUE(Says(refusal, "move it away"));
    EXPECT_TRUE(BytesOf(Location().path) == before) << "the file was changed";
  }
};

TEST_F(StoreRefusals, GarbageInsteadOfAHeader) {
  MakeFullStore();
  Overwrite(0, "this is no database");
  ExpectCorrupt();
}

TEST_F(StoreRefusals, ATextFile) {
  std::ofstream(Location().path) << "dear diary\n" << std::string(5000, 'z');
  ExpectCorrupt();
}

TEST_F(StoreRefusals, ATruncatedFile) {
  MakeFullStore();
  const auto size = std::filesystem::file_size(Location().path);
  for (const std::uintmax_t left :
       {size - 4096, size / 2, size / 2 + 100, std::uintmax_t{4096}, std::uintmax_t{50}}) {
    std::filesystem::resize_file(Location().path, left);
    ExpectCorrupt();
  }
}

TEST_F(StoreRefusals, AnyPageOverwritten) {
  MakeFullStore();
  const std::string intact = BytesOf(Location().path);
  constexpr std::size_t kPage = 4096;
  for (std::size_t page = 1; page < intact.size() / kPage; ++page) {
    std::string flipped = intact.substr(page * kPage, kPage);
    std::transform(flipped.begin(), flipped.end(), flipped.begin(),
                   [](char c) { return static_cast<char>(~c); });
    Overwrite(page * kPage, flipped);
    LeaveALog();
    ExpectCorrupt();
    Overwrite(page * kPage, intact.substr(page * kPage, kPage));
  }
  EXPECT_EQ(Refusal(Location()), "opened");
}

TEST_F(StoreRefusals, AfterACleanEndDamageIsToldByTheCallThatMeetsIt) {
  MakeFullStore();
  ASSERT_FALSE(std::filesystem::exists(Log()));
  constexpr std::size_t kPage = 4096;
  const std::size_t pages = std::filesystem::file_size(Location().path) / kPage;
  Overwrite(pages / 2 * kPage, std::string(kPage * (pages / 2), '\xAA'));
  auto store = FileStore::Open(Location());
  ASSERT_TRUE(store) << store.error().message;
  const auto rows = store->FindJobs(EveryJob());
  ASSERT_FALSE(rows);
  EXPECT_TRUE(Says(rows.error().message, "the file is corrupt"));
}

TEST_F(StoreRefusals, ACorruptFileWithALogNotYetWrittenBackKeepsBoth) {
  MakeFullStore();
  const StoreLocation source{folder_ / "source.db"};
  std::filesystem::rename(Location().path, source.path);
  auto store = FileStore::Open(source);
  ASSERT_TRUE(store);
  ASSERT_TRUE(store->BeginJob(SampleJob()));
  std::filesystem::copy_file(source.path,
                             Location().path);  // as after a kill: the last row is in the log only
  const std::string wal = Location().path.string() + "-wal";
  std::filesystem::copy_file(source.path.string() + "-wal", wal);
  const std::string wal_before = BytesOf(wal);
  ASSERT_FALSE(wal_before.empty());
  constexpr std::size_t kPage = 4096;
  Overwrite(50 * kPage, std::string(kPage, '\xAA'));
  ExpectCorrupt();
  EXPECT_TRUE(BytesOf(wal) == wal_before) << "the log was changed";
}

TEST_F(StoreRefusals, TheDatabaseOfAnotherProgram) {
  {
    Database other(Location().path.string(), Database::Mode::kCreate);
    other.Run("CREATE TABLE bookmarks (url)");
  }
  const std::string before = BytesOf(Location().path);
  EXPECT_TRUE(Says(Refusal(Location()), "database of another program"));
  EXPECT_TRUE(BytesOf(Location().path) == before);
}

TEST_F(StoreRefusals, PlacesThatAreNoFile) {
  EXPECT_TRUE(Says(Refusal({folder_}), "this is a folder"));
  EXPECT_TRUE(Says(Refusal({"/dev/null"}), "no regular file"));
  std::ofstream(folder_ / "file").close();
  EXPECT_TRUE(Says(Refusal({folder_ / "file/profiles.db"}), "file"));
  std::filesystem::create_symlink(folder_ / "nowhere", folder_ / "link.db");
  EXPECT_TRUE(Says(Refusal({folder_ / "link.db"}), "symbolic link to nothing"));
  std::filesystem::create_symlink(folder_ / "loop", folder_ / "loop");
  EXPECT_TRUE(Says(Refusal({folder_ / "loop/profiles.db"}), "profile store"));
  EXPECT_TRUE(Says(Refusal({folder_ / std::string(300, 'n')}), "profile store"));
}

TEST_F(StoreRefusals, AMissingFileThatIsNotToBeMade) {
  StoreOptions options;
  options.create = false;
  EXPECT_TRUE(Says(Refusal({folder_ / "sub/profiles.db"}, options), "there is no such file"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "sub"));
}

TEST_F(StoreRefusals, ALinkIsFollowedSoThatTheLogLiesBesideTheFile) {
  ASSERT_EQ(Refusal(Location()), "opened");
  std::filesystem::create_directory(folder_ / "other");
  const StoreLocation link{folder_ / "other/link.db"};
  std::filesystem::create_symlink(Location().path, link.path);
  auto store = FileStore::Open(link);
  ASSERT_TRUE(store) << store.error().message;
  ASSERT_TRUE(store->BeginJob(SampleJob()));
  EXPECT_TRUE(std::filesystem::exists(Location().path.string() + "-wal"));
  EXPECT_FALSE(std::filesystem::exists(link.path.string() + "-wal"));
}

/// Root may write everywhere, so this becomes a user who may not.
bool BecomeNobody() {
  constexpr uid_t kNobody = 65534;
  if (geteuid() != 0) return true;
  return setgroups(0, nullptr) == 0 && setgid(kNobody) == 0 && setuid(kNobody) == 0;
}

TEST_F(StoreRefusals, AFolderThatMayNotBeWritten) {
  chmod(folder_.c_str(), 0555);
  const std::string refusal =
      InChild([&] { return BecomeNobody() ? Refusal(Location()) : "cannot drop rights"; });
  EXPECT_TRUE(Says(refusal, "the folder " + folder_.string() +
                                " is not readable and writable to you (Permission denied)"));
  chmod(folder_.c_str(), 0755);
  EXPECT_FALSE(std::filesystem::exists(Location().path));
}

TEST_F(StoreRefusals, AFileThatMayNotBeWritten) {
  ASSERT_EQ(Refusal(Location()), "opened");
  chmod(folder_.c_str(), 0777);
  chmod(Location().path.c_str(), 0444);
  const std::string refusal =
      InChild([&] { return BecomeNobody() ? Refusal(Location()) : "cannot drop rights"; });
  EXPECT_TRUE(Says(refusal, "the file is not readable and writable to you"));
}

/// Stores jobs until the store refuses; returns the error.
std::string FillUp(ProfileStore& store, std::size_t& stored) {
  JobRecord job = SampleJob();
  job.config = std::string(8000, 'x');
  for (stored = 0; stored < 10000; ++stored) {
    if (const auto id = store.BeginJob(job); !id) {
      return id.error().message +
             (id.error().exit_code == ExitCode::kStore ? "" : " (wrong exit code)");
    }
  }
  return "never full";
}

std::string ExpectStored(ProfileStore& store, std::size_t stored) {
  const auto rows = store.FindJobs(EveryJob());
  if (!rows) return rows.error().message;
  return rows->size() == stored
             ? ""
             : "stored " + std::to_string(stored) + ", found " + std::to_string(rows->size());
}

TEST_F(StoreRefusals, AFullDiskKeepsWhatWasStored) {
  const std::string outcome = InChild([&]() -> std::string {
    const auto mounted =
        OwnMounts() && mount("none", folder_.c_str(), "tmpfs", 0, "size=700k") == 0;
    if (!mounted) return "cannot mount a small disk";
    std::ofstream(folder_ / "ballast") << std::string(100 * 1024, 'b');
    auto store = FileStore::Open(Location());
    if (!store) return store.error().message;
    std::size_t stored = 0;
    const std::string refusal = FillUp(*store, stored);
    if (auto says = Says(refusal, "the disk is full"); !says) return says.message();
    if (auto says = Says(refusal, "make room in " + folder_.string()); !says) return says.message();
    if (stored < 3) return "full too early";
    if (const std::string lost = ExpectStored(*store, stored); !lost.empty()) return lost;
    std::filesystem::remove(folder_ / "ballast");
    const auto again = store->BeginJob(SampleJob());
    if (!again) return "after making room: " + again.error().message;
    store = FileStore::Open(Location());
    return store ? ExpectStored(*store, stored + 1) : store.error().message;
  });
  EXPECT_EQ(outcome, "");
}

TEST_F(StoreRefusals, ADiskWithoutRoomForANewStore) {
  const std::string outcome = InChild([&]() -> std::string {
    const auto mounted = OwnMounts() && mount("none", folder_.c_str(), "tmpfs", 0, "size=8k") == 0;
    return mounted ? Refusal(Location()) : "cannot mount a small disk";
  });
  EXPECT_TRUE(Says(outcome, "the disk is full"));
}

TEST_F(StoreRefusals, ALimitOnTheSizeOfFilesIsToldLikeAFullDisk) {
  const std::string outcome = InChild([&]() -> std::string {
    auto store = FileStore::Open(Location());
    if (!store) return store.error().message;
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{200 * 1024, 200 * 1024};
    setrlimit(RLIMIT_FSIZE, &limit);
    std::size_t stored = 0;
    const std::string refusal = FillUp(*store, stored);
    if (auto says = Says(refusal, "the disk is full (File too large)"); !says)
      return says.message();
    return ExpectStored(*store, stored);
  });
  EXPECT_EQ(outcome, "");
}

TEST_F(StoreRefusals, ANetworkFileSystemByNameWithoutTouchingIt) {
  const std::string outcome = InChild([&]() -> std::string {
    if (!OwnMounts()) return "cannot make a mount namespace";
    FuseMount sshfs(folder_, "fuse.sshfs");
    if (!sshfs.Mounted()) return "cannot mount a FUSE file system";
    for (const StoreLocation& location : {Location(), StoreLocation{folder_ / "a/b/profiles.db"}}) {
      if (auto says = Says(Refusal(location),
                           folder_.string() + " lies on a network file system (fuse.sshfs)");
          !says) {
        return says.message();
      }
    }
    return sshfs.Changes() == 0 ? "" : "something was written there";
  });
  EXPECT_EQ(outcome, "");
}

}  // namespace
}  // namespace adaptive_train::store_refusals_test
