#include "launcher/report/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

namespace adaptive_train {
namespace {

constexpr std::int64_t kLines = 20;  // about so many for a whole run
constexpr std::int64_t kBarWidth = 20;
constexpr std::chrono::milliseconds kRedrawPeriod{100};

std::size_t WindowWidth(std::FILE* terminal) {
  winsize window{};
  constexpr std::size_t kUsual = 80;
  if (::ioctl(::fileno(terminal), TIOCGWINSZ, &window) != 0 || window.ws_col < 2) return kUsual;
  return window.ws_col;
}

std::string LineOf(std::span<const RankMetrics> ranks, std::int64_t total) {
  const RankMetrics& slowest = *std::max_element(
      ranks.begin(), ranks.end(),
      [](const RankMetrics& a, const RankMetrics& b) { return a.step_s < b.step_s; });
  std::string line = fmt::format(
      "step {:>{}}/{}  loss {:.4f}  {:.0f} ms  {:.0f} tokens/s  grad norm {:.3f}  lr {:.2e}",
      slowest.step, std::to_string(total).size(), total, slowest.loss, 1e3 * slowest.step_s,
      TokensPerSecond(ranks), slowest.grad_norm, slowest.lr);
  if (slowest.skipped) line += "  skipped: gradient not finite";
  if (slowest.validation_loss)
    line += fmt::format("  validation loss {:.4f}", *slowest.validation_loss);
  return line;
}

}  // namespace

Progress::Progress(std::FILE* out, std::int64_t total_steps)
    : out_(out),
      total_(total_steps),
      every_(std::max<std::int64_t>(1, total_steps / kLines)),
      terminal_(::isatty(::fileno(out)) == 1) {}

void Progress::Step(std::span<const RankMetrics> ranks) {
  const RankMetrics& first = ranks.front();
  const bool worth_a_line =
      first.skipped || first.validation_loss.has_value() || first.step == 1 || first.step == total_;
  const std::string line = LineOf(ranks, total_);
  if (!terminal_) {
    if (worth_a_line || first.step % every_ == 0) Put(line + "\n");
  } else if (worth_a_line) {
    Put("\r\x1b[K" + line + "\n");
    open_line_ = false;
  } else if (const auto now = std::chrono::steady_clock::now(); now - drawn_ >= kRedrawPeriod) {
    drawn_ = now;
    const auto filled = static_cast<std::size_t>(kBarWidth * std::min(first.step, total_) / total_);
    const std::string bar =
        "[" + std::string(filled, '#') + std::string(kBarWidth - filled, '.') + "] ";
    // A line that wraps could not be drawn over.
    Put("\r\x1b[K" + (bar + line).substr(0, WindowWidth(out_) - 1));
    open_line_ = true;
  }
}

void Progress::Notice(const std::string& text) {
  End();
  Put(text + "\n");
}

void Progress::End() {
  if (open_line_) Put("\n");
  open_line_ = false;
}

/// A terminal or a reader that is gone must not end the run: what cannot be shown is not shown.
void Progress::Put(const std::string& text) {
  std::fputs(text.c_str(), out_);
  std::fflush(out_);
}

}  // namespace adaptive_train
