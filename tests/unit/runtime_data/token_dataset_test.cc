// Samples of a text, and every kind of unsuitable text.
#include "runtime/data/token_dataset.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "tests/unit/runtime_data/text_file.h"

namespace adaptive_train::token_dataset_test {
namespace {

/// Bytes 0, 1, ..., 250, 0, 1, ...: a token shows its place.
std::string Counting(std::size_t size) {
  std::string text(size, '\0');
  for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i % 251);
  return text;
}

std::string ErrorOf(const std::string& train, const std::string& validation,
                    std::int64_t sequence = 128, std::int64_t vocab = 256) {
  const Result<Datasets> opened = OpenDatasets({train, validation, "auto", sequence, vocab, 1});
  if (opened) return "";
  EXPECT_EQ(ExitCode::kUsage, opened.error().exit_code);
  return opened.error().message;
}

TEST(TokenDataset, WindowsAreTheTextAndTargetsOneFurtherOn) {
  const TextFile text(Counting(2000)), validation(Counting(100));
  const Datasets data = OpenDatasets({text.path(), validation.path(), "auto", 16, 256, 1}).value();
  EXPECT_EQ((2000 - 1) / 16, data.train.samples());
  std::vector<std::int32_t> tokens(16), targets(16);
  for (std::int64_t window = 0; window < data.train.samples(); ++window) {
    ASSERT_TRUE(data.train.Window(window, tokens, targets));
    for (std::int64_t i = 0; i < 16; ++i) {
      ASSERT_EQ((window * 16 + i) % 251, tokens[static_cast<std::size_t>(i)]);
      ASSERT_EQ((window * 16 + i + 1) % 251, targets[static_cast<std::size_t>(i)]);
    }
  }
}

TEST(TokenDataset, AnEpochVisitsEveryWindowOnceAndTheNextInAnotherOrder) {
  const TextFile text(Counting(1000)), validation(Counting(100));
  const TokenDataset train =
      OpenDatasets({text.path(), validation.path(), "auto", 10, 256, 5}).value().train;
  ASSERT_EQ(99, train.samples());
  std::vector<std::int64_t> first, second;
  for (std::int64_t i = 0; i < 99; ++i) {
    first.push_back(train.WindowOf(i));
    second.push_back(train.WindowOf(99 + i));
  }
  EXPECT_EQ(99U, std::set<std::int64_t>(first.begin(), first.end()).size());
  EXPECT_EQ(99U, std::set<std::int64_t>(second.begin(), second.end()).size());
  EXPECT_NE(first, second);
  std::vector<std::int64_t> in_order(99);
  std::iota(in_order.begin(), in_order.end(), 0);
  EXPECT_NE(in_order, first);
  std::vector<std::int32_t> tokens(10), targets(10), expected(10);
  ASSERT_TRUE(train.Sample(7, tokens, targets));
  ASSERT_TRUE(train.Window(first[7], expected, targets));
  EXPECT_EQ(expected, tokens);
}

TEST(TokenDataset, AutoValidationIsTheLastTwentiethAndTrainingLeavesItOut) {
  const TextFile text(Counting(2000));
  const Datasets data = OpenDatasets({text.path(), "auto", "auto", 16, 256, 1}).value();
  EXPECT_EQ(1900, data.train.tokens());
  EXPECT_EQ(100, data.validation.tokens());
  std::vector<std::int32_t> tokens(16), targets(16);
  ASSERT_TRUE(data.validation.Window(0, tokens, targets));
  EXPECT_EQ(1900 % 251, tokens[0]);
  ASSERT_TRUE(data.train.Window(data.train.samples() - 1, tokens, targets));
  EXPECT_LT(data.train.samples() * 16, 1900);
}

TEST(TokenDataset, UnigramEntropyIsThatOfTheFrequencies) {
  const TextFile text(std::string(3000, 'a') + std::string(1000, 'b') + std::string(200000, 'c')),
      one(std::string(200, 'a'));
  const Datasets data = OpenDatasets({text.path(), one.path(), "auto", 16, 256, 1}).value();
  double expected = 0;
  for (const double count : {3000, 1000, 200000})
    expected -= count / 204000 * std::log(count / 204000);
  EXPECT_NEAR(expected, data.train.UnigramEntropy().value(), 1e-12);
  EXPECT_EQ(0, data.validation.UnigramEntropy().value());
}

TEST(TokenDataset, TheSmallestTextHoldsOneSample) {
  const TextFile text(Counting(129)), validation(Counting(129));
  const Datasets data = OpenDatasets({text.path(), validation.path(), "auto", 128, 256, 1}).value();
  EXPECT_EQ(1, data.train.samples());
  EXPECT_EQ(0, data.train.WindowOf(12345));
}

TEST(TokenDataset, ATextThatIsTooShortIsRefusedWithWhatItNeeds) {
  const TextFile enough(Counting(5000)), small(Counting(120)), tail(Counting(1200)), empty("");
  EXPECT_EQ("data.train: " + small.path() + ": 120 tokens, one sample needs sequence + 1 = 129",
            ErrorOf(small.path(), "auto"));
  EXPECT_EQ(
      "data.validation: " + small.path() + ": 120 tokens, one sample needs sequence + 1 = 129",
      ErrorOf(enough.path(), small.path()));
  EXPECT_EQ(
      "data.validation: the last 5 % of " + tail.path() +
          ": 60 tokens, one sample needs sequence + 1 = 129; name a validation file, or train "
          "on a longer text",
      ErrorOf(tail.path(), "auto"));
  EXPECT_EQ("data.train: " + empty.path() + ": the file is empty", ErrorOf(empty.path(), "auto"));
}

TEST(TokenDataset, WhatIsNoReadableFileIsRefusedAtOnce) {
  const TextFile text(Counting(5000));
  EXPECT_EQ("data.train: /nonexistent/text: cannot be opened: No such file or directory",
            ErrorOf("/nonexistent/text", "auto"));
  EXPECT_EQ("data.validation: /nonexistent/text: cannot be opened: No such file or directory",
            ErrorOf(text.path(), "/nonexistent/text"));
  EXPECT_EQ("data.train: " + testing::TempDir() + ": not a regular file",
            ErrorOf(testing::TempDir(), "auto"));
  EXPECT_EQ("data.train: /dev/zero: not a regular file", ErrorOf("/dev/zero", "auto"));
  EXPECT_EQ("data.train: no file named; it takes the path of a file of tokens",
            ErrorOf("", "auto"));
  const std::string pipe = text.path() + ".pipe";
  ASSERT_EQ(0, ::mkfifo(pipe.c_str(), 0600));
  EXPECT_EQ("data.train: " + pipe + ": not a regular file", ErrorOf(pipe, "auto"));
  ::unlink(pipe.c_str());
}

TEST(TokenDataset, AByteBeyondTheVocabularyIsAnErrorWithItsPlace) {
  std::string bytes(1000, 'a');
  bytes[500] = static_cast<char>(200);
  const TextFile text(bytes);
  const TokenDataset train = OpenDatasets({text.path(), "auto", "auto", 16, 128, 1}).value().train;
  std::vector<std::int32_t> tokens(16), targets(16);
  EXPECT_TRUE(train.Window(0, tokens, targets));
  const std::string expected = "data.train: " + text.path() +
                               ": byte 500 has the token 200, model.vocab = 128 allows 0 to 127: "
                               "set model.vocab to 201 or more";
  EXPECT_EQ(expected, train.Window(500 / 16, tokens, targets).error().message);
  EXPECT_EQ(expected, train.UnigramEntropy().error().message);
}

TEST(TokenDataset, AFileThatShrinksIsAnErrorNotACrash) {
  const TextFile text(Counting(100000));
  const TokenDataset train = OpenDatasets({text.path(), "auto", "auto", 16, 256, 1}).value().train;
  text.Resize(1000);
  std::vector<std::int32_t> tokens(16), targets(16);
  EXPECT_TRUE(train.Window(0, tokens, targets));
  const Result<void> read = train.Window(5000, tokens, targets);
  ASSERT_FALSE(read);
  EXPECT_EQ("data.train: " + text.path() +
                ": the file became shorter during the run: it had 100000 bytes and now ends before "
                "byte 80000",
            read.error().message);
  EXPECT_FALSE(train.UnigramEntropy());
}

}  // namespace
}  // namespace adaptive_train::token_dataset_test
