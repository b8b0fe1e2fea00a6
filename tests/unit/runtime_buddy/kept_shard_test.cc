// The words of a kept part come back, and only whole.
#include "runtime/buddy/kept_shard.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace adaptive_train::kept_shard_test {
namespace {

KeptShard Shard() {
  KeptShard shard;
  shard.entry = {.attempt = 3, .step = 70, .kind = KeptKind::kOwnResiduals, .rank = 2, .ranks = 4};
  shard.entry.arenas = 2;
  shard.entry.slot = 1;
  shard.entry.residuals = true;
  shard.entry.part = {1, 0, 2, 4, kNoBuddy};
  shard.entry.header_bytes = 4096;
  shard.index.step = 70;
  shard.index.arena_of = 1;
  shard.index.arena = CheckpointArena{{{.name = "w"}}, BucketRule::Whole(10, 4)};
  shard.index.residuals = 10;
  shard.index.block_hashes = {7};
  shard.at = {70, 69, "identity", {{"samples", 700.0}}, {}};
  return shard;
}

TEST(KeptShard, ComesBack) {
  const auto text = KeptText(Shard());
  ASSERT_TRUE(text);
  const auto read = ParseKeptShard(*text + std::string(100, '\0'), "it");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->entry.FileName(), "attempt-3-rank-2-residuals-1");
  EXPECT_EQ(read->entry.part.arena_of, 1);
  EXPECT_EQ(read->entry.part.places, 4);
  EXPECT_EQ(read->entry.header_bytes, 4096);
  EXPECT_EQ(read->index.residuals, 10);
  EXPECT_EQ(read->at.updates, 69);
  EXPECT_EQ(read->at.extra.at("samples"), 700.0);
  const auto entry = ParseKeptEntry(KeptLine(read->entry), "it");
  ASSERT_TRUE(entry);
  EXPECT_EQ(entry->step, 70);
}

TEST(KeptShard, WhatIsTornOrChangedIsRefused) {
  const std::string text = *KeptText(Shard());
  for (std::size_t size = 0; size < text.size(); ++size)
    EXPECT_FALSE(ParseKeptShard(text.substr(0, size), "it") && size + 1 < text.size()) << size;
  const std::size_t place = text.find("\"residuals\":10");
  ASSERT_NE(place, std::string::npos);
  std::string other = text;
  other[place + 12] = '2';
  EXPECT_FALSE(ParseKeptShard(other, "it"));
}

TEST(KeptShard, FileNamesComeBackAndOthersAreNone) {
  const auto entry = KeptEntry::OfFileName("attempt-12-rank-3-state-0");
  ASSERT_TRUE(entry);
  EXPECT_EQ(entry->attempt, 12);
  EXPECT_EQ(entry->rank, 3);
  EXPECT_EQ(entry->kind, KeptKind::kState);
  for (const char* name :
       {"", "x", "attempt-1-rank-2-state-", "attempt-1-rank-2-other-0", "attempt-1-rank-2-state-0x",
        "attempt-01-rank-2-state-0", "attempt-1-rank-2-state-0/../../x"})
    EXPECT_FALSE(KeptEntry::OfFileName(name)) << name;
}

TEST(KeptShard, NumbersThatAreNotFiniteAreRefused) {
  KeptShard shard = Shard();
  shard.at.extra["scale"] = std::numeric_limits<double>::infinity();
  EXPECT_FALSE(KeptText(shard));
}

}  // namespace
}  // namespace adaptive_train::kept_shard_test
