// A shard's index: read again as it was written, and refused in one line where it says nonsense.
#include "runtime/checkpoint/checkpoint_index.h"

#include <gmock/gmock.h>

namespace adaptive_train::checkpoint_index_test {
namespace {

ShardIndex SomeIndex() {
  ShardIndex index;
  index.step = 120;
  index.arena_of = 7;
  index.arena = {{{"wte.weight"},
                  {"h.0.attn.c_attn.weight", {}, {{0, 2}, {4, 6}}},
                  {"h.0.attn.c_proj.weight", {1, 3}},
                  {.name = "ln_f.bias", .copy = true}},
                 {{100, 300000}, 4096, 12, 16}};
  index.place = 11;
  index.elements = 25000;
  index.residuals = 300000;
  index.block_hashes = {0x0123456789abcdef, 2};
  return index;
}

TEST(ShardIndex, IsReadAgainAsItWasWritten) {
  for (const bool describes : {true, false}) {
    ShardIndex written = SomeIndex();
    if (!describes) written.arena.reset();
    const auto index = ParseIndex(IndexText(written), "index");
    ASSERT_TRUE(index) << index.error().message;
    EXPECT_EQ(index->step, 120);
    EXPECT_EQ(index->arena_of, 7);
    EXPECT_EQ(index->arena.has_value(), describes);
    if (describes) {
      EXPECT_EQ(index->arena->blocks, written.arena->blocks);
      EXPECT_EQ(index->arena->rule.part_ends, written.arena->rule.part_ends);
      EXPECT_EQ(index->arena->rule.bucket_elements, 4096);
      EXPECT_EQ(index->arena->rule.places, 12);
      EXPECT_EQ(index->arena->rule.alignment, 16);
    }
    EXPECT_EQ(index->place, 11);
    EXPECT_EQ(index->Bytes(), (3 * 25000 + 300000) * 4);
    EXPECT_EQ(index->block_hashes, written.block_hashes);
    EXPECT_EQ(IndexText(*index), IndexText(written));
  }
}

TEST(ShardIndex, IsAsDocumented) {
  EXPECT_EQ(
      IndexText(SomeIndex()),
      R"({"format_version":4,"step":120,"arena_of":7,"arena":{"blocks":["wte.weight",)"
      R"({"name":"h.0.attn.c_attn.weight","columns":[[0,2],[4,6]]},)"
      R"({"name":"h.0.attn.c_proj.weight","rows":[1,3]},{"name":"ln_f.bias","copy":true}],)"
      R"("rule":{"part_ends":[100,300000],"bucket_elements":4096,"places":12,"alignment":16}},)"
      R"("place":11,"elements":25000,"residuals":300000,)"
      R"("block_xxh3":["0123456789abcdef","0000000000000002"]})"
      "\n");
}

TEST(ShardIndex, NonsenseIsRefusedInOneLine) {
  const struct {
    const char* what;
    const char* by;
    const char* why;
  } changes[] = {
      {"[0,2],[4,6]", "[4,6],[0,2]", "h.0.attn.c_attn.weight: columns are not in order"},
      {"[0,2],[4,6]", "[0,2],[1,6]", "h.0.attn.c_attn.weight: columns are not in order"},
      {"[0,2],[4,6]", "", "h.0.attn.c_attn.weight: columns are none"},
      {"[0,2],[4,6]", "[2,2]", "h.0.attn.c_attn.weight: columns: [2, 2) is not a range"},
      {"[1,3]", "[3,1]", "h.0.attn.c_proj.weight: rows: [3, 1) is not a range"},
      {"[1,3]", "[-1,3]", "h.0.attn.c_proj.weight: rows is not a count"},
      {"[1,3]", "[1]", "h.0.attn.c_proj.weight: rows are not [begin, end]"},
      {"[1,3]", "[1,9007199254740992]", "h.0.attn.c_proj.weight: rows is not a count"},
      {"[100,300000]", "[100,99]", "part_ends do not ascend"},
      {"\"places\":12", "\"places\":0",
       "buckets of 4096 elements for 0 places, aligned to 16, are no rule"},
      {"\"places\":12", "\"places\":2147483648",
       "buckets of 4096 elements for 2147483648 places, aligned to 16, are no rule"},
      {"elements\":4096", "elements\":0",
       "buckets of 0 elements for 12 places, aligned to 16, are no rule"},
      {"[100,300000]", "[100,9007199254740991]",
       "a rule of 2199023255553 buckets; 16777216 is the most"},
      {"\"elements\":25000", "\"elements\":-1", "elements is not a count"},
      {"\"elements\":25000", "\"elements\":250000", "2 hashes for 5 blocks"},
      {"0123456789abcdef", "0123456789abcdeg", "\"0123456789abcdeg\" is not a hash"},
      {"\"format_version\":4", "\"format_version\":5",
       "format_version 5 is not one that this program reads (2 to 4)"},
  };
  for (const auto& [what, by, why] : changes) {
    std::string text = IndexText(SomeIndex());
    text.replace(text.find(what), std::string(what).size(), by);
    const auto index = ParseIndex(text, "here");
    ASSERT_FALSE(index) << by;
    EXPECT_EQ(index.error().message, std::string("here: ") + why);
  }
}

}  // namespace
}  // namespace adaptive_train::checkpoint_index_test
