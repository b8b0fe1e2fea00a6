#include "launcher/report/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

namespace adaptive_train {
namespace {

constexpr std::int64_t kLines = 20;  // about so many for a whole run
constexpr int kBarWidth = 20;

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
  if (terminal_) {
    const auto filled =
        static_cast<std::size_t>(kBarWidth * first.step / std::max<std::int64_t>(1, total_));
    const std::string bar = std::string(filled, '#') +
                            std::string(kBarWidth - std::min<std::size_t>(filled, kBarWidth), '.');
    fmt::print(out_, "\r\x1b[K[{}] {}", bar, LineOf(ranks, total_));
    open_line_ = true;
    if (worth_a_line) End();
  } else if (worth_a_line || first.step % every_ == 0) {
    fmt::print(out_, "{}\n", LineOf(ranks, total_));
  }
  std::fflush(out_);
}

void Progress::Notice(const std::string& text) {
  End();
  fmt::print(out_, "{}\n", text);
  std::fflush(out_);
}

void Progress::End() {
  if (open_line_) fmt::print(out_, "\n");
  open_line_ = false;
  std::fflush(out_);
}

}  // namespace adaptive_train
