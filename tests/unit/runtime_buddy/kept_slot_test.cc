// A file of kept state counts only while it is whole.
#include "runtime/buddy/kept_slot.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "runtime/buddy/kept_shard.h"

namespace adaptive_train::kept_slot_test {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kElements = 400'000;  // 1.6 MB: two blocks

class KeptSlotTest : public testing::Test {
 protected:
  KeptSlotTest() {
    std::string pattern = (fs::temp_directory_path() / "slot.XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("cannot make a folder");
    folder_ = pattern;
    shard_.entry = {.attempt = 1, .step = 5};
    shard_.index.step = shard_.at.step = 5;
    shard_.index.arena = CheckpointArena{{{.name = "w"}}, BucketRule::Whole(kElements, 1)};
    shard_.index.residuals = kElements;
    shard_.index.block_hashes = {1, 2};
    shard_.entry.header_bytes =
        static_cast<std::int64_t>(KeptHeaderBytes(KeptText(shard_)->size()));
  }
  ~KeptSlotTest() override { fs::remove_all(folder_); }

  Result<KeptSlot> Make() {
    return KeptSlot::Make(Path(), static_cast<std::size_t>(shard_.entry.header_bytes),
                          kElements * sizeof(float));
  }
  std::string Path() const { return folder_ + "/" + shard_.entry.FileName(); }

  std::string folder_;
  KeptShard shard_;
};

TEST_F(KeptSlotTest, CountsFromCompleteToTheNextBegin) {
  auto slot = Make();
  ASSERT_TRUE(slot) << slot.error().message;
  struct stat info {};
  ASSERT_EQ(::stat(Path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
  EXPECT_FALSE(KeptFile::Open(Path()));
  slot->Begin();
  std::ranges::fill(slot->content(), std::byte{3});
  ASSERT_TRUE(slot->SetText(*KeptText(shard_)));
  EXPECT_FALSE(KeptFile::Open(Path()));
  slot->Complete();
  const auto file = KeptFile::Open(Path());
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(ParseKeptShard(file->text(), "it")->at.step, 5);
  EXPECT_EQ(file->Block(1).size(), kElements * sizeof(float) - (1U << 20));
  EXPECT_EQ(file->Block(1).back(), std::byte{3});
  slot->Begin();
  EXPECT_FALSE(KeptFile::Open(Path()));
}

TEST_F(KeptSlotTest, AMessageCarriesAllButTheMark) {
  auto slot = Make();
  ASSERT_TRUE(slot);
  std::ranges::fill(slot->content(), std::byte{9});
  ASSERT_TRUE(slot->SetText(*KeptText(shard_)));
  const std::string there = folder_ + "/attempt-1-rank-7-state-0";
  auto copy = KeptSlot::Make(there, static_cast<std::size_t>(shard_.entry.header_bytes),
                             kElements * sizeof(float));
  ASSERT_TRUE(copy);
  std::ranges::copy(slot->message(), copy->message().begin());
  EXPECT_FALSE(KeptFile::Open(there));
  copy->Complete();
  ASSERT_TRUE(KeptFile::Open(there));
}

TEST_F(KeptSlotTest, WordsThatDoNotFitAreRefused) {
  auto slot = Make();
  ASSERT_TRUE(slot);
  EXPECT_FALSE(
      slot->SetText(std::string(static_cast<std::size_t>(shard_.entry.header_bytes), ' ')));
}

TEST_F(KeptSlotTest, OddFilesAreRefused) {
  std::ofstream(Path()) << "something else that is longer than any mark of a kept state would be";
  EXPECT_FALSE(KeptFile::Open(Path()));
  std::ofstream(Path(), std::ios::trunc);
  EXPECT_FALSE(KeptFile::Open(Path()));
  {
    auto slot = Make();
    ASSERT_TRUE(slot->SetText(*KeptText(shard_)));
    slot->Complete();
  }
  ASSERT_TRUE(KeptFile::Open(Path()));
  fs::create_symlink(Path(), folder_ + "/link");
  EXPECT_FALSE(KeptFile::Open(folder_ + "/link"));
  fs::resize_file(Path(), fs::file_size(Path()) - 1);
  EXPECT_FALSE(KeptFile::Open(Path()));
}

TEST_F(KeptSlotTest, WithoutTheRoomNothingIsLeft) {
  const auto slot = KeptSlot::Make(Path(), 4096, std::size_t{1} << 50);
  EXPECT_FALSE(slot);
  EXPECT_FALSE(fs::exists(Path()));
}

TEST_F(KeptSlotTest, OnlyPartsThatAreToGoAreRemoved) {
  std::ofstream(folder_ + "/attempt-1-rank-0-state-0") << "x";
  std::ofstream(folder_ + "/attempt-2-rank-0-state-0") << "x";
  std::ofstream(folder_ + "/another") << "x";
  RemoveKept(folder_, [](const KeptEntry& entry) { return entry.attempt < 2; });
  EXPECT_FALSE(fs::exists(folder_ + "/attempt-1-rank-0-state-0"));
  EXPECT_TRUE(fs::exists(folder_ + "/attempt-2-rank-0-state-0"));
  EXPECT_TRUE(fs::exists(folder_ + "/another"));
}

}  // namespace
}  // namespace adaptive_train::kept_slot_test
