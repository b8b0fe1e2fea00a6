// TensorBoard event files, read back by a parser of their own.
#include "launcher/report/event_file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "core/file_io.h"
#include "tests/unit/launcher/event_records.h"
#include "tests/unit/launcher/temporary_folder.h"

namespace adaptive_train::event_file_test {
namespace {

constexpr std::size_t kLimit = 1 << 20;

TEST(Crc32c, KnowsTheCheckValueAndEveryByte) {
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);  // the check value of CRC-32C's catalogue entry
  EXPECT_EQ(Crc32c(""), 0u);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);  // RFC 3720, B.4
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  EXPECT_EQ(Crc32c(all), test::BitwiseCrc32c(all));
}

TEST(EventFile, IsReadBackAsItWasWritten) {
  test::TemporaryFolder folder;
  auto file = EventFile::Create(folder.Path() + "/a/tensorboard", 301, 1.5e9 + 0.25);
  ASSERT_TRUE(file) << file.error().message;
  const float infinity = std::numeric_limits<float>::infinity();
  const Scalar first[] = {{"loss/train", 3.25}, {"lr", 1e-3}};
  const Scalar second[] = {{"loss/train", std::nan("")}, {"perplexity/validation", infinity}};
  ASSERT_TRUE(file->Add(301, 1.5e9 + 1, first));
  ASSERT_TRUE(file->Add(std::int64_t{1} << 40, 1.5e9 + 2, second));
  ASSERT_TRUE(file->Add(302, 1.5e9 + 3, {}));
  const auto events = test::ParseEvents(*ReadFile(file->Path(), kLimit));
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[0].file_version, "brain.Event:2");
  EXPECT_EQ(events[0].wall_time, 1.5e9 + 0.25);
  EXPECT_EQ(events[1].session_status, 1u);  // START
  EXPECT_EQ(events[1].step, 301);
  EXPECT_EQ(events[2].step, 301);
  EXPECT_EQ(events[2].wall_time, 1.5e9 + 1);
  EXPECT_EQ(events[2].scalars,
            (std::map<std::string, float>{{"loss/train", 3.25f}, {"lr", 1e-3f}}));
  EXPECT_EQ(events[3].step, std::int64_t{1} << 40);
  EXPECT_TRUE(std::isnan(events[3].scalars.at("loss/train")));
  EXPECT_EQ(events[3].scalars.at("perplexity/validation"), infinity);
  EXPECT_TRUE(events[4].scalars.empty());
}

TEST(EventFile, EveryBitIsUnderAChecksum) {
  test::TemporaryFolder folder;
  auto file = EventFile::Create(folder.Path(), 1, 1.5e9);
  const Scalar scalar[] = {{"lr", 0.5}};
  ASSERT_TRUE(file->Add(1, 1.5e9, scalar));
  std::string bytes = *ReadFile(file->Path(), kLimit);
  for (char& byte : bytes) {
    byte = static_cast<char>(byte ^ 4);
    EXPECT_ANY_THROW(test::ParseEvents(bytes)) << &byte - bytes.data();
    byte = static_cast<char>(byte ^ 4);
  }
  EXPECT_NO_THROW(test::ParseEvents(bytes));
}

TEST(EventFile, ALaterFileSortsBehindWhateverTheClockSays) {
  test::TemporaryFolder folder;
  std::string newest = EventFile::Create(folder.Path(), 1, 1.5e9)->Path();
  for (const double clock : {1.5e9, 1.5e9, 1.4e9, 1.6e9, 0.0}) {
    auto file = EventFile::Create(folder.Path(), 1, clock);
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_GT(file->Path(), newest);
    newest = file->Path();
  }
  std::ofstream(folder.Path() + "/events.out.tfevents.");  // foreign names are no obstacle
  std::ofstream(folder.Path() + "/events.out.tfevents.9223372036854775807.x");
  EXPECT_GT(EventFile::Create(folder.Path(), 1, 1.5e9)->Path(), newest);
}

TEST(EventFile, AFolderThatCannotBeIsAnError) {
  test::TemporaryFolder folder;
  std::ofstream(folder.Path() + "/file") << "x";
  auto file = EventFile::Create(folder.Path() + "/file/tensorboard", 1, 0);
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().exit_code, ExitCode::kRankFailure);
  EXPECT_NE(file.error().message.find(folder.Path()), std::string::npos);
}

/// Files of this process may not grow past `bytes` while it lives.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  sighandler_t handler_;
};

TEST(EventFile, HalfAnEventIsTakenBack) {
  test::TemporaryFolder folder;
  auto file = EventFile::Create(folder.Path(), 1, 1.5e9);
  const Scalar scalar[] = {{"loss/train", 0.5}};
  ASSERT_TRUE(file->Add(1, 1.5e9, scalar));
  const std::string whole = *ReadFile(file->Path(), kLimit);
  {
    FileSizeLimit limit(whole.size() + 10);
    auto added = file->Add(2, 1.5e9, scalar);
    ASSERT_FALSE(added);
    EXPECT_NE(added.error().message.find("events.out.tfevents."), std::string::npos);
  }
  EXPECT_EQ(*ReadFile(file->Path(), kLimit), whole);
  ASSERT_TRUE(file->Add(3, 1.5e9, scalar));
  EXPECT_EQ(test::ParseEvents(*ReadFile(file->Path(), kLimit)).back().step, 3);
}

}  // namespace
}  // namespace adaptive_train::event_file_test
