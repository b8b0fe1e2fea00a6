#include "launcher/simulator/timeline_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <string_view>

namespace adaptive_train {
namespace {

constexpr double kWidth = 1200;     // of the picture, px
constexpr double kRight = 24;       // margin
constexpr double kTop = 62;         // above the rows: title and legend
constexpr double kAxis = 44;        // below them
constexpr double kLetter = 7;       // approximate width of a label's character
constexpr double kDigit = 6.2;      // and of a micro-batch's number
constexpr double kSmallest = 0.15;  // narrower than this is not drawn
constexpr std::size_t kLongestLabel = 28;
constexpr double kPaler = 0.3, kPalest = 0.4;  // opacity of a later chunk

/// The colours differ enough in lightness to be distinguished without hue.
struct Look {
  Activity activity;
  std::string_view name, fill, text;
};
constexpr std::array kLooks{
    Look{Activity::kForward, "forward", "#8fc1ea", "#123"},
    Look{Activity::kBackward, "backward", "#2f6fb2", "#fff"},
    Look{Activity::kBackwardInput, "backward, input", "#2f6fb2", "#fff"},
    Look{Activity::kBackwardWeight, "backward, weights", "#1c3f66", "#fff"},
    Look{Activity::kExchange, "exchange of gradients", "#f2a33a", "#321"},
    Look{Activity::kUpdate, "update", "#4b9b57", "#fff"},
};

const Look& LookOf(Activity activity) {
  return *std::find_if(kLooks.begin(), kLooks.end(),
                       [&](const Look& look) { return look.activity == activity; });
}

std::string Escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += '?';
    } else {
      out += c;
    }
  }
  return out;
}

/// 1, 2 or 5 times a power of ten: about eight ticks.
double TickOf(double seconds) {
  const double raw = seconds / 8;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (raw <= factor * power) return factor * power;
  return 10 * power;
}

struct Unit {
  double seconds;
  std::string_view name;
};
Unit UnitOf(double seconds) {
  if (seconds >= 2) return {1, "s"};
  return seconds >= 2e-3 ? Unit{1e-3, "ms"} : Unit{1e-6, "µs"};
}

class Picture {
 public:
  Picture(std::span<const Span> timeline, const std::vector<std::string>& labels)
      : labels_(labels), ranks_(labels.size()) {
    rows_ = std::min<std::size_t>(ranks_, kPicturedRows);
    for (const Span& span : timeline) {
      if (std::isfinite(span.end)) seconds_ = std::max(seconds_, span.end);
      has_[static_cast<std::size_t>(span.activity)] = true;
      has_chunks_ = has_chunks_ || span.chunk > 0;
    }
    std::size_t longest = 6;
    for (std::size_t i = 0; i < rows_; ++i)
      longest = std::max(longest, std::min(labels[i].size(), kLongestLabel));
    left_ = 20 + kLetter * static_cast<double>(longest);
    row_ = rows_ <= 16 ? 26 : rows_ <= 32 ? 20 : 15;
    bottom_ = kTop + row_ * static_cast<double>(rows_);
    if (seconds_ > 0) scale_ = (kWidth - left_ - kRight) / seconds_;
  }

  std::string Draw(std::span<const Span> timeline, const std::string& title);

 private:
  template <class... Args>
  void Add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
    out_ += '\n';
  }
  double X(double seconds) const { return left_ + seconds * scale_; }
  double Y(int rank) const { return kTop + row_ * rank; }

  void DrawHead(const std::string& title);
  void DrawLegend();
  void DrawAxis();
  void DrawRows();
  void DrawSpan(const Span& span);
  void DrawRest();

  const std::vector<std::string>& labels_;
  const std::size_t ranks_;
  std::size_t rows_ = 0;
  std::array<bool, kLooks.size() + 1> has_{};  // index = activity
  bool has_chunks_ = false;
  double seconds_ = 0, left_ = 0, row_ = 0, bottom_ = 0, scale_ = 0;
  std::string out_;
};

void Picture::DrawHead(const std::string& title) {
  const double height = bottom_ + kAxis + (ranks_ > rows_ ? 20 : 0);
  Add(R"(<?xml version="1.0" encoding="UTF-8"?>)");
  Add(R"(<svg xmlns="http://www.w3.org/2000/svg" width="{}" height="{}" viewBox="0 0 {} {}" )"
      R"(font-family="DejaVu Sans, Helvetica, Arial, sans-serif" font-size="12" fill="#222">)",
      kWidth, height, kWidth, height);
  Add(R"(<rect width="100%" height="100%" fill="#fff"/>)");
  Add(R"(<text x="12" y="22" font-size="15" font-weight="bold">{}</text>)", Escaped(title));
}

void Picture::DrawLegend() {
  double x = left_;
  for (const Look& look : kLooks) {
    if (!has_[static_cast<std::size_t>(look.activity)]) continue;
    Add(R"(<rect x="{:.1f}" y="34" width="14" height="14" fill="{}"/>)", x, look.fill);
    Add(R"(<text x="{:.1f}" y="46">{}</text>)", x + 19, look.name);
    x += 40 + kLetter * static_cast<double>(look.name.size());
  }
  Add(R"(<rect x="{:.1f}" y="34.5" width="14" height="13" fill="#f1f1ee" stroke="#bbb"/>)", x);
  Add(R"(<text x="{:.1f}" y="46">waiting</text>)", x + 19);
  Add(R"(<text x="{:.1f}" y="46" fill="#666">numbers: micro-batches{}</text>)", x + 95,
      has_chunks_ ? "; paler: later chunks of the rank" : "");
}

void Picture::DrawRows() {
  const double inner = row_ - 3;
  for (std::size_t i = 0; i < rows_; ++i) {
    const double y = Y(static_cast<int>(i));
    std::string label = labels_[i];
    if (label.size() > kLongestLabel) label = label.substr(0, kLongestLabel - 3) + "...";
    Add(R"(<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" fill="#f1f1ee"/>)", left_, y,
        kWidth - left_ - kRight, inner);
    Add(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="end" font-size="{}">{}</text>)", left_ - 8,
        y + inner / 2 + 4, row_ < 18 ? 10 : 12, Escaped(label));
  }
}

void Picture::DrawAxis() {
  Add(R"(<g stroke="#888" fill="none"><path d="M{:.1f} {:.1f}H{:.1f}"/>)", left_, bottom_ + 2,
      kWidth - kRight);
  if (seconds_ <= 0) {
    Add("</g>");
    return;
  }
  const double tick = TickOf(seconds_);
  const Unit unit = UnitOf(seconds_);
  for (int i = 0; i * tick <= seconds_ * (1 + 1e-9); ++i)
    Add(R"(<path d="M{:.1f} {:.1f}v5"/>)", X(i * tick), bottom_ + 2);
  Add("</g>");
  for (int i = 0; i * tick <= seconds_ * (1 + 1e-9); ++i)
    Add(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="middle" font-size="11">{:.6g}{}</text>)",
        X(i * tick), bottom_ + 20, i * tick / unit.seconds,
        i == 0 ? fmt::format(" {}", unit.name) : std::string());
  Add(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="end" font-size="11">time in the step, {}; )"
      R"(it ends after {:.4g} {}</text>)",
      kWidth - kRight, bottom_ + 36, unit.name, seconds_ / unit.seconds, unit.name);
}

/// An exchange fills the row and is drawn first. Computation during it is drawn over it and leaves
/// its lower edge visible.
void Picture::DrawSpan(const Span& span) {
  const double width = (std::min(span.end, seconds_) - span.begin) * scale_;
  if (width < kSmallest || span.rank >= static_cast<int>(rows_)) return;
  const Look& look = LookOf(span.activity);
  const double inner = row_ - 3;
  const double height = span.activity == Activity::kExchange ? inner : std::round(inner * 0.78);
  const double opacity = std::max(kPalest, 1 - kPaler * span.chunk);
  Add(R"(<rect x="{:.2f}" y="{:.1f}" width="{:.2f}" height="{:.1f}" fill="{}"{}{}/>)",
      X(span.begin), Y(span.rank), width, height, look.fill,
      span.chunk > 0 ? fmt::format(R"( fill-opacity="{:.2f}")", opacity) : "",
      width > 3 ? R"( stroke="#fff" stroke-width="0.6")" : "");
  if (span.micro_batch < 0) return;
  const std::string number = fmt::format("{}", span.micro_batch);
  if (static_cast<double>(number.size()) * kDigit + 3 > width) return;
  Add(R"(<text x="{:.2f}" y="{:.1f}" text-anchor="middle" font-size="10" fill="{}">{}</text>)",
      X((span.begin + span.end) / 2), Y(span.rank) + height / 2 + 3.6, look.text, number);
}

void Picture::DrawRest() {
  if (ranks_ > rows_)
    Add(R"(<text x="12" y="{:.1f}" fill="#666">the first {} of {} rows are shown</text>)",
        bottom_ + kAxis + 8, rows_, ranks_);
  Add("</svg>");
}

std::string Picture::Draw(std::span<const Span> timeline, const std::string& title) {
  DrawHead(title);
  DrawLegend();
  DrawRows();
  for (const Span& span : timeline)
    if (span.activity == Activity::kExchange) DrawSpan(span);
  for (const Span& span : timeline)
    if (span.activity != Activity::kExchange && span.activity != Activity::kIdle) DrawSpan(span);
  DrawAxis();
  DrawRest();
  return std::move(out_);
}

}  // namespace

std::string TimelineSvg(std::span<const Span> timeline, const std::vector<std::string>& labels,
                        const std::string& title) {
  return Picture(timeline, labels).Draw(timeline, title);
}

std::string TimelineSvg(const PlanProblem& problem, const Layout& layout,
                        const Simulation& simulation) {
  std::vector<std::string> labels;
  for (std::size_t rank = 0; rank < layout.devices.size(); ++rank) {
    const auto device = static_cast<std::size_t>(layout.devices[rank]);
    const auto node = static_cast<std::size_t>(problem.devices[device].node);
    std::string label = fmt::format("{} {}", rank, problem.node_names[node]);
    if (layout.Stages() > 1)
      label +=
          fmt::format(" stage {}", rank / static_cast<std::size_t>(layout.data * layout.tensor));
    labels.push_back(std::move(label));
  }
  return TimelineSvg(
      simulation.timeline, labels,
      fmt::format("one simulated step: {} ranks, {} stages x {} replicas x {} tensor ranks",
                  labels.size(), layout.Stages(), layout.data, layout.tensor));
}

}  // namespace adaptive_train
