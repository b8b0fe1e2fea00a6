#include "launcher/report/step_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace adaptive_train {
namespace {

constexpr double kGiB = 1 << 30;
constexpr std::size_t kGap = 2;

/// Three or four digits and a letter: 999, 1.23k, 45.6M.
std::string Short(double value) {
  constexpr std::array<const char*, 6> kPrefixes = {"", "k", "M", "G", "T", "P"};
  if (!std::isfinite(value) || value < 9999.5) return fmt::format("{:.0f}", value);
  std::size_t unit = 0;
  for (; value >= 999.5 && unit + 1 < kPrefixes.size(); ++unit) value /= 1000;
  const int digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f}{}", value, digits, kPrefixes[unit]);
}

/// Up to `digits` decimals, while that fits seven characters.
std::string Fixed(double value, int digits) {
  return std::abs(value) < 99.99 ? fmt::format("{:.{}f}", value, digits)
                                 : fmt::format("{:.4g}", value);
}

std::string Rate(double teraflops) {
  if (teraflops >= 9.9995 || teraflops == 0) return fmt::format("{:.1f}", teraflops);
  return teraflops >= 0.01 ? fmt::format("{:.3f}", teraflops) : fmt::format("{:.2g}", teraflops);
}

struct Column {
  const char* name;
  std::size_t width;
  int rank;  // columns with higher rank are dropped first; 0 always stays
  std::string (*cell)(const StepMetrics&);
};
constexpr Column kColumns[] = {
    {"tokens", 6, 6,
     [](const StepMetrics& s) {
       return Short(static_cast<double>(s.tokens) * static_cast<double>(s.step));
     }},
    {"loss", 7, 0, [](const StepMetrics& s) { return Fixed(s.loss, 4); }},
    {"norm", 7, 4, [](const StepMetrics& s) { return Fixed(s.grad_norm, 3); }},
    {"lr", 8, 5, [](const StepMetrics& s) { return fmt::format("{:.2e}", s.lr); }},
    {"ms", 6, 2,
     [](const StepMetrics& s) {
       const double ms = 1e3 * s.step_s;
       return ms < 99.95 ? fmt::format("{:.1f}", ms) : fmt::format("{:.0f}", ms);
     }},
    {"tokens/s", 8, 1, [](const StepMetrics& s) { return Short(s.tokens_per_s); }},
    {"TFLOP/s", 7, 8, [](const StepMetrics& s) { return Rate(s.tflops); }},
    {"MFU", 5, 3,
     [](const StepMetrics& s) {
       return s.mfu > 0 ? fmt::format("{:.1f}%", 100 * s.mfu) : std::string("-");
     }},
    {"GiB", 5, 7,
     [](const StepMetrics& s) {
       return Fixed(static_cast<double>(s.peak_memory_bytes) / kGiB, 2);
     }},
};

/// The highest rank of columns that fits lines of `width` characters.
int RankThatFits(std::size_t step_width, std::size_t width) {
  int rank = static_cast<int>(std::size(kColumns));
  for (; rank > 0; --rank) {
    std::size_t needed = step_width;
    for (const Column& column : kColumns) needed += column.rank <= rank ? kGap + column.width : 0;
    if (needed <= width) break;
  }
  return rank;
}

}  // namespace

StepTable::StepTable(std::int64_t total_steps)
    : total_(total_steps),
      step_width_(
          static_cast<int>(std::max<std::size_t>(4, 2 * std::to_string(total_steps).size() + 1))) {}

std::string StepTable::Header(std::size_t width) const {
  const int rank = RankThatFits(static_cast<std::size_t>(step_width_), width);
  std::string line = fmt::format("{:>{}}", "step", step_width_);
  for (const Column& column : kColumns)
    if (column.rank <= rank) line += fmt::format("{:>{}}", column.name, kGap + column.width);
  return line;
}

std::string StepTable::Row(const StepMetrics& step, std::size_t width) const {
  const int rank = RankThatFits(static_cast<std::size_t>(step_width_), width);
  std::string line =
      fmt::format("{:>{}}", std::to_string(step.step) + "/" + std::to_string(total_), step_width_);
  for (const Column& column : kColumns)
    if (column.rank <= rank) line += fmt::format("{:>{}}", column.cell(step), kGap + column.width);
  return line;
}

std::string ShownPerplexity(double loss) {
  constexpr double kLarge = 1e6;
  const double perplexity = Perplexity(loss);
  return perplexity < kLarge ? fmt::format("{:.2f}", perplexity)
                             : fmt::format("{:.3g}", perplexity);
}

}  // namespace adaptive_train
