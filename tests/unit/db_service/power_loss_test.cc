// The host of a store loses its power, before any operation on its files: what is there afterwards.
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <set>

#include "db/database.h"
#include "db/file_store.h"
#include "db/launcher_process.h"
#include "db/open_database.h"
#include "db/service/request_writer.h"
#include "tests/unit/db/power_loss_vfs.h"
#include "tests/unit/db/store_fixture.h"

namespace adaptive_train::power_loss_test {
namespace {

/// Long enough that some jobs fill the log, which then is written back into the file.
constexpr std::size_t kConfigBytes = 60000;
constexpr int kJobs = 150;

JobRecord LongJob() {
  JobRecord job = SampleJob();
  job.config = std::string(kConfigBytes, 'c');
  job.launcher = ThisProcess();
  return job;
}

/// Jobs that were acknowledged, in order. Any thread.
class Acknowledged {
 public:
  void Add(std::int64_t id) {
    {
      const std::lock_guard lock(mutex_);
      ids_.push_back(id);
    }
    changed_.notify_all();
  }
  void AwaitCount(std::size_t count) {
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(
        changed_.wait_for(lock, std::chrono::seconds(60), [&] { return ids_.size() >= count; }));
  }
  std::vector<std::int64_t> Ids() {
    const std::lock_guard lock(mutex_);
    return ids_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::int64_t> ids_;
};

class PowerLossTest : public StoreTest {
 protected:
  /// adaptive-traind's writer, which several users ask at once.
  void WriteAsService(Acknowledged& acknowledged) {
    auto opened = OpenDatabase(Location(), kBusyTimeout, true, SchemaMigrations());
    ASSERT_TRUE(opened) << opened.error().message;
    RequestWriter writer(std::move(*opened), {}, [](const LogLine&) {});
    constexpr int kAtOnce = 5;
    for (int i = 0; i < kJobs; i += kAtOnce) {
      for (int k = 0; k < kAtOnce; ++k) {
        writer.Add(
            {1000, "ann", false}, store_request::BeginJob{LongJob()},
            [&](const StoreAnswer& answer) { acknowledged.Add(std::get<std::int64_t>(answer)); });
      }
      acknowledged.AwaitCount(static_cast<std::size_t>(i + kAtOnce));
    }
  }

  /// A user's own file.
  void WriteAsUser(Acknowledged& acknowledged) {
    auto store = FileStore::Open(Location());
    ASSERT_TRUE(store) << store.error().message;
    for (int i = 0; i < kJobs; ++i) {
      const auto id = store->BeginJob(LongJob());
      ASSERT_TRUE(id) << id.error().message;
      acknowledged.Add(*id);
    }
  }

  /// Lets `write` work on an empty folder, with a loss of power before the operation, and opens
  /// what is left: `check` gets its jobs, and those that had been acknowledged. Returns the number
  /// of operations.
  template <class Write, class Check>
  std::int64_t Try(std::int64_t operation, const Write& write, const Check& check) {
    const std::filesystem::path left = folder_ / "left";
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
      std::filesystem::remove_all(entry);
    Acknowledged acknowledged;
    std::vector<std::int64_t> before;
    std::int64_t operations = 0;
    {
      PowerLossVfs disk;
      disk.LosePowerBefore(
          operation, static_cast<std::uint64_t>(operation), [&](const PowerLossVfs::Kept& kept) {
            before = acknowledged.Ids();
            std::filesystem::create_directory(left);
            for (const auto& [path, content] : kept)
              std::ofstream(left / std::filesystem::path(path).filename(), std::ios::binary)
                  << content;
          });
      write(acknowledged);
      operations = disk.operations();
    }
    if (operation < 0) return operations;
    auto store = FileStore::Open(StoreLocation{left / "profiles.db"});  // runs quick_check
    EXPECT_TRUE(store) << "before operation " << operation << ": " << store.error().message;
    if (!store) return operations;
    const auto rows = store->FindJobs(EveryJob());
    EXPECT_TRUE(rows) << rows.error().message;
    std::set<std::int64_t> ids;
    for (const JobRow& row : *rows) {
      EXPECT_EQ(row.job.config.size(), kConfigBytes);
      ids.insert(row.id);
    }
    SCOPED_TRACE("before operation " + std::to_string(operation));
    check(ids, before);
    return operations;
  }

  template <class Write, class Check>
  void TryMany(const Write& write, const Check& check) {
    const std::int64_t operations = Try(-1, write, check);
    ASSERT_GT(operations, 1000);
    const char* const asked = std::getenv("ADAPTIVE_TRAIN_POWER_LOSSES");
    const std::int64_t losses = asked == nullptr ? 20 : std::atoll(asked);
    std::mt19937_64 random(7);
    for (std::int64_t i = 0; i < losses && !HasFailure(); ++i)
      Try(static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(operations)), write,
          check);
  }
};

TEST_F(PowerLossTest, TheServiceLosesNothingThatItHasAcknowledged) {
  TryMany([&](Acknowledged& acknowledged) { WriteAsService(acknowledged); },
          [](const std::set<std::int64_t>& kept, const std::vector<std::int64_t>& before) {
            for (const std::int64_t id : before) EXPECT_TRUE(kept.contains(id)) << "job " << id;
          });
}

// It does not wait for the disk at each row: the last ones may be lost, but none before them.
TEST_F(PowerLossTest, AFileOfOnesOwnStaysWholeAndKeepsTheOldest) {
  TryMany([&](Acknowledged& acknowledged) { WriteAsUser(acknowledged); },
          [](const std::set<std::int64_t>& kept, const std::vector<std::int64_t>& before) {
            std::int64_t next = 1;
            for (const std::int64_t id : kept) EXPECT_EQ(id, next++);
            EXPECT_LE(kept.size(), before.size() + 1);
          });
}

}  // namespace
}  // namespace adaptive_train::power_loss_test
