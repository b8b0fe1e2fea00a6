#include "launcher/report/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "launcher/report/job_time.h"

namespace adaptive_train {
namespace {

constexpr std::int64_t kLeastRows = 20;
constexpr double kRowSeconds = 30;
constexpr int kHeaderEvery = 20;            // lines
constexpr std::size_t kFileWidth = 108;     // characters of a line in a file
constexpr std::size_t kTimeLeftWidth = 17;  // "  D-HH:MM:SS left"
constexpr std::size_t kLeastBar = 5, kMostBar = 20, kBarFrame = 3;  // " [" and "]"
constexpr std::chrono::milliseconds kRedrawPeriod{100};

std::size_t WindowWidth(std::FILE* terminal) {
  winsize window{};
  constexpr std::size_t kUsual = 80;
  if (::ioctl(::fileno(terminal), TIOCGWINSZ, &window) != 0 || window.ws_col < 2) return kUsual;
  return window.ws_col;
}

/// Characters for the row on a terminal; a bar comes after it.
std::size_t RowWidth(std::size_t window) {
  return window - std::min(window, kLeastBar + kBarFrame);
}

/// A run that skips every step must not fill a disk with messages.
bool WorthSaying(std::int64_t count) { return count <= 10 || count % 100 == 0; }

const char* FromNowOn(std::int64_t count) {
  return count == 10 ? "; from now on every 100th is reported" : "";
}

}  // namespace

std::int64_t StepsPerRow(std::int64_t total_steps, double mean_step_s) {
  const std::int64_t most = std::max<std::int64_t>(1, total_steps / kLeastRows);
  for (std::int64_t power = 1; power < most; power *= 10) {
    for (const std::int64_t every : {power, 2 * power, 5 * power})
      if (static_cast<double>(every) * mean_step_s >= kRowSeconds) return std::min(every, most);
  }
  return most;
}

Progress::Progress(std::FILE* out, std::int64_t total_steps)
    : out_(out),
      total_(total_steps),
      table_(total_steps),
      terminal_(::isatty(::fileno(out)) == 1) {}

void Progress::Step(const StepMetrics& step, const std::optional<LossVerdict>& verdict) {
  seconds_ += step.step_s;
  ++steps_;
  skipped_ += step.skipped ? 1 : 0;
  const bool spike = verdict && verdict->spike;
  spikes_ += spike ? 1 : 0;
  Row(step, (step.skipped && WorthSaying(skipped_)) || (spike && WorthSaying(spikes_)) ||
                step.validation_loss.has_value());
  Remarks(step, verdict);
}

void Progress::Row(const StepMetrics& step, bool stands_out) {
  const bool keep = stands_out || step.step == 1 || step.step == total_;
  if (!terminal_) {
    const std::int64_t every = StepsPerRow(total_, seconds_ / static_cast<double>(steps_));
    if (!keep && step.step % every != 0) return;
    Header(kFileWidth - kTimeLeftWidth, kFileWidth);
    Put(table_.Row(step, kFileWidth - kTimeLeftWidth) + TimeLeft(step.step) + "\n");
    ++lines_since_header_;
    return;
  }
  const std::size_t window = WindowWidth(out_) - 1;  // a row that wraps could not be overwritten
  const auto now = std::chrono::steady_clock::now();
  if (keep) {
    Header(RowWidth(window), window);
    Put("\r\x1b[K" + table_.Row(step, RowWidth(window)).substr(0, window) + "\n");
    ++lines_since_header_;
    open_line_ = false;
  } else if (now - drawn_ >= kRedrawPeriod) {
    drawn_ = now;
    Header(RowWidth(window), window);
    Rewrite(step, window);
  }
}

void Progress::Rewrite(const StepMetrics& step, std::size_t window) {
  const std::string row = table_.Row(step, RowWidth(window));
  const std::size_t room = window - std::min(window, row.size() + kBarFrame);
  const std::size_t bar = std::min(room, kMostBar);
  const double done = static_cast<double>(step.step) / static_cast<double>(total_);
  const auto filled = static_cast<std::size_t>(static_cast<double>(bar) * std::min(1.0, done));
  std::string line = row + " [" + std::string(filled, '#') + std::string(bar - filled, '.') + "]";
  const std::string left = TimeLeft(step.step);
  if (line.size() + left.size() <= window) line += left;
  Put("\r\x1b[K" + line.substr(0, window));
  open_line_ = true;
}

/// Estimated from the mean time of the steps so far.
std::string Progress::TimeLeft(std::int64_t step) const {
  if (step >= total_) return "";
  const double mean_step_s = seconds_ / static_cast<double>(steps_);
  return "  " + ShownSpan(mean_step_s * static_cast<double>(total_ - step)) + " left";
}

/// Prints the column names at the start, after some lines, and if a terminal changes its width.
void Progress::Header(std::size_t width, std::size_t window) {
  const std::string header = table_.Header(width);
  if (header == header_ && lines_since_header_ < kHeaderEvery) return;
  header_ = header;
  lines_since_header_ = 0;
  Put((terminal_ ? "\r\x1b[K" : "") + header.substr(0, window) + "\n");
  open_line_ = false;
}

void Progress::Remarks(const StepMetrics& step, const std::optional<LossVerdict>& verdict) {
  if (step.skipped && WorthSaying(skipped_)) {
    Notice(
        fmt::format("step {} skipped: gradient not finite, loss scale {:g} ({} skipped so far{})",
                    step.step, step.loss_scale, skipped_, FromNowOn(skipped_)));
  }
  if (verdict && verdict->spike && WorthSaying(spikes_)) {
    Notice(fmt::format("loss spike at step {}: {:.4f}, expected {:.4f}, z {:.1f} ({} so far{})",
                       step.step, step.loss, verdict->expected, verdict->z, spikes_,
                       FromNowOn(spikes_)));
  }
  if (step.validation_loss) {
    Notice(fmt::format("validation at step {}: loss {:.4f}, perplexity {}", step.step,
                       *step.validation_loss, ShownPerplexity(*step.validation_loss)));
  }
}

void Progress::Notice(const std::string& text) {
  End();
  Put(text + "\n");
  ++lines_since_header_;
}

void Progress::End() {
  if (open_line_) Put("\n");
  open_line_ = false;
}

/// A terminal or reader that is gone must not end the run: output is then dropped.
void Progress::Put(const std::string& text) {
  std::fputs(text.c_str(), out_);
  std::fflush(out_);
}

}  // namespace adaptive_train
