// What a person sees of a run: in a file, and on a terminal of some width.
#include "launcher/report/progress.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>
#include <vector>

#include "core/file_io.h"
#include "tests/unit/launcher/temporary_folder.h"

namespace adaptive_train::progress_test {
namespace {

using testing::HasSubstr;
using testing::Not;

StepMetrics Step(std::int64_t step) {
  StepMetrics metrics;
  metrics.step = step;
  metrics.tokens = 1000;
  metrics.loss = 3;
  metrics.step_s = 0.1;
  metrics.loss_scale = 1024;
  return metrics;
}

std::vector<std::string> LinesOf(const std::string& text) {
  std::stringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

template <class Show>
std::string InAFile(std::int64_t total, Show show) {
  test::TemporaryFolder folder;
  const std::string path = folder.Path() + "/out";
  std::FILE* out = std::fopen(path.c_str(), "w");
  Progress progress(out, total);
  show(progress);
  progress.End();
  std::fclose(out);
  return *ReadFile(path, 1 << 22);
}

/// What a terminal of `width` columns is sent.
template <class Show>
std::string OnATerminal(unsigned short width, std::int64_t total, Show show) {
  const int master = ::posix_openpt(O_RDWR | O_NOCTTY);
  if (master < 0 || ::grantpt(master) != 0 || ::unlockpt(master) != 0) return "no terminal";
  const winsize window{24, width, 0, 0};
  std::FILE* out = std::fopen(::ptsname(master), "w");
  if (out == nullptr || ::ioctl(master, TIOCSWINSZ, &window) != 0) return "no terminal";
  Progress progress(out, total);
  show(progress);
  progress.End();
  std::fputc('\4', out);  // marks the end: a read from the terminal would wait for more
  std::fclose(out);
  std::string text;
  char byte = 0;
  while (::read(master, &byte, 1) == 1 && byte != '\4') text += byte;
  ::close(master);
  return text;
}

TEST(StepsPerRow, GivesARowInHalfAMinuteButTwentyInARun) {
  EXPECT_EQ(StepsPerRow(1'000'000, 60), 1);
  EXPECT_EQ(StepsPerRow(1'000'000, 20), 2);
  EXPECT_EQ(StepsPerRow(1'000'000, 1), 50);
  EXPECT_EQ(StepsPerRow(1'000'000, 0.1), 500);
  EXPECT_EQ(StepsPerRow(1'000'000, 0), 50'000);
  EXPECT_EQ(StepsPerRow(300, 0.01), 15);
  EXPECT_EQ(StepsPerRow(10, 0.01), 1);
  EXPECT_EQ(StepsPerRow(0, 1), 1);
}

TEST(Progress, AFileGetsTwentyRowsUnderTheirNames) {
  const auto lines = LinesOf(InAFile(400, [](Progress& progress) {
    for (int step = 1; step <= 400; ++step) progress.Step(Step(step), std::nullopt);
  }));
  ASSERT_EQ(lines.size(), 1 + 20 + 1 + 1u);  // steps 1, 20, 40 ... under two headers
  EXPECT_THAT(lines[0], HasSubstr("tokens/s"));
  EXPECT_THAT(lines[1], HasSubstr("1/400"));
  EXPECT_THAT(lines[2], HasSubstr("20/400"));
  EXPECT_THAT(lines[2], HasSubstr(" left"));
  EXPECT_THAT(lines[22], Not(HasSubstr("left")));
  EXPECT_THAT(lines[21], HasSubstr("tokens/s"));
  EXPECT_THAT(lines[22], HasSubstr("400/400"));
  for (const std::string& line : lines) {
    EXPECT_LE(line.size(), 108u);
    EXPECT_THAT(line, Not(HasSubstr("\x1b")));
  }
}

TEST(Progress, SaysWhatStandsOut) {
  const std::string text = InAFile(10'000, [](Progress& progress) {
    progress.Step(Step(6), std::nullopt);
    StepMetrics skipped = Step(7);
    skipped.skipped = true;
    progress.Step(skipped, std::nullopt);
    progress.Step(Step(8), LossVerdict{2.5, 8.25, true});
    progress.Step(Step(9), LossVerdict{2.5, 1.0, false});
    StepMetrics validated = Step(11);
    validated.validation_loss = 0;
    progress.Step(validated, std::nullopt);
  });
  EXPECT_THAT(text, HasSubstr("step 7 skipped: gradient not finite, loss scale 1024 (1 skipped so "
                              "far)\n"));
  EXPECT_THAT(text, HasSubstr("loss spike at step 8: 3.0000, expected 2.5000, z 8.2 (1 so far)\n"));
  EXPECT_THAT(text, HasSubstr("validation at step 11: loss 0.0000, perplexity 1.00\n"));
  EXPECT_EQ(LinesOf(text).size(), 1 + 3 * 2u) << text;
}

TEST(Progress, ARunThatSkipsEveryStepDoesNotFlood) {
  const std::string text = InAFile(1'000'000, [](Progress& progress) {
    for (int step = 1; step <= 1000; ++step) {
      StepMetrics skipped = Step(step);
      skipped.skipped = true;
      progress.Step(skipped, std::nullopt);
    }
  });
  EXPECT_THAT(text, HasSubstr("(10 skipped so far; from now on every 100th is reported)"));
  EXPECT_THAT(text, HasSubstr("(1000 skipped so far)"));
  EXPECT_LT(LinesOf(text).size(), 60u);
}

TEST(Progress, ATerminalHasARowThatIsRewrittenWithABar) {
  for (const unsigned short width : {40, 80, 100, 200}) {
    const std::string text = OnATerminal(width, 100, [](Progress& progress) {
      progress.Step(Step(1), std::nullopt);
      progress.Step(Step(50), std::nullopt);
      progress.Notice("a notice");
      progress.Step(Step(100), std::nullopt);
    });
    const auto lines = LinesOf(text);
    ASSERT_EQ(lines.size(), 5u) << text;
    EXPECT_THAT(lines[0], HasSubstr("step"));
    EXPECT_THAT(lines[1], HasSubstr("1/100"));
    EXPECT_THAT(lines[2], testing::AllOf(HasSubstr("50/100"), HasSubstr("##"), HasSubstr("..]")));
    EXPECT_THAT(lines[3], HasSubstr("a notice"));
    EXPECT_THAT(lines[4], testing::AllOf(HasSubstr("100/100"), Not(HasSubstr("#"))));
    const std::size_t controls = std::string("\r\x1b[K\r").size();
    for (const std::string& line : lines) EXPECT_LE(line.size(), width + controls - 1) << line;
    if (width >= 100) {
      EXPECT_THAT(lines[0], HasSubstr("GiB"));
    }
  }
}

TEST(Progress, NoLineWrapsOnTheNarrowestTerminal) {
  for (const unsigned short width : {2, 5, 9, 20}) {
    const std::string text = OnATerminal(width, 100, [](Progress& progress) {
      progress.Step(Step(1), std::nullopt);
      progress.Step(Step(50), std::nullopt);
    });
    const auto lines = LinesOf(text);
    ASSERT_EQ(lines.size(), 3u) << text;
    const std::size_t controls = std::string("\r\x1b[K\r").size();
    for (const std::string& line : lines) EXPECT_LE(line.size(), width + controls - 1) << line;
  }
}

}  // namespace
}  // namespace adaptive_train::progress_test
