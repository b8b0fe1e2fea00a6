// Every element of an arena has one owner; queries by element, bucket and place agree.
#include "runtime/model/bucket_rule.h"

#include <gmock/gmock.h>

namespace adaptive_train::bucket_rule_test {
namespace {

using testing::ElementsAre;

std::vector<BucketRule> Rules() {
  std::vector<BucketRule> rules;
  for (const std::int64_t places : {1, 2, 3, 7, 64, 200}) {
    for (const std::int64_t most : {1, 17, 100, 1000, 5000}) {
      rules.push_back({{313, 313, 320, 2000, 3001}, most, places});
      rules.push_back({{3001}, most, places, 1});
    }
    rules.push_back(BucketRule::Whole(1234, places));
    rules.push_back(BucketRule::Whole(0, places));
  }
  return rules;
}

TEST(BucketRule, EveryElementHasOneOwner) {
  for (const BucketRule& rule : Rules()) {
    std::vector<std::int64_t> owner(static_cast<std::size_t>(rule.size()), -1);
    for (std::int64_t place = 0; place < rule.places; ++place) {
      std::int64_t count = 0;
      for (const ElementRange& range : rule.OwnedBy(place)) {
        EXPECT_GT(range.size(), 0);
        count += range.size();
        for (std::int64_t i = range.begin; i < range.end; ++i) {
          ASSERT_EQ(owner[static_cast<std::size_t>(i)], -1);
          owner[static_cast<std::size_t>(i)] = place;
        }
      }
      EXPECT_EQ(count, rule.CountOf(place));
    }
    for (std::int64_t i = 0; i < rule.size(); ++i) {
      const ElementRange bucket = rule.BucketAt(i);
      ASSERT_TRUE(bucket.begin <= i && i < bucket.end);
      ASSERT_EQ(rule.PlaceAt(bucket, i), owner[static_cast<std::size_t>(i)]);
    }
  }
}

TEST(BucketRule, BucketsCoverTheirPartAndAreNoLargerThanAskedFor) {
  for (const BucketRule& rule : Rules()) {
    std::int64_t at = 0, count = 0;
    for (std::size_t part = 0; part < rule.part_ends.size(); ++part) {
      for (const ElementRange& bucket : rule.BucketsOf(part)) {
        EXPECT_EQ(bucket.begin, at);
        EXPECT_GT(bucket.size(), 0);
        EXPECT_LE(bucket.size(), rule.bucket_elements);
        at = bucket.end;
        ++count;
      }
      EXPECT_EQ(at, rule.part_ends[part]);
    }
    EXPECT_EQ(count, rule.BucketCount());
  }
}

/// Ranks of another version must cut alike: these numbers are part of the checkpoint format.
TEST(BucketRule, IsCutAsItAlwaysWas) {
  const BucketRule rule{{100, 1000}, 400, 3};
  EXPECT_THAT(rule.OwnedBy(0), ElementsAre(ElementRange{0, 32}, ElementRange{100, 196},
                                           ElementRange{400, 496}, ElementRange{700, 796}));
  EXPECT_THAT(rule.OwnedBy(2), ElementsAre(ElementRange{64, 100}, ElementRange{292, 400},
                                           ElementRange{592, 700}, ElementRange{892, 1000}));
}

TEST(BucketRule, FractionsDoNotOverflow) {
  const std::int64_t most = (std::int64_t{1} << 53) - 1, n = (std::int64_t{1} << 31) - 1;
  EXPECT_EQ(FractionOf(most, n, n), most);
  EXPECT_EQ(FractionOf(most, n - 1, n), most - (most / n + 1));
}

}  // namespace
}  // namespace adaptive_train::bucket_rule_test
