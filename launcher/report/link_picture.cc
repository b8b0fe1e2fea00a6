#include "launcher/report/link_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/file_io.h"
#include "launcher/report/link_table.h"

namespace adaptive_train {
namespace {

constexpr int kFont = 13;
constexpr double kCharWidth = 0.62 * kFont;
constexpr int kMargin = 16;
constexpr int kScaleHeight = 70;

struct Colour {
  double red, green, blue;
};

/// From slow to fast. Perceived brightness falls evenly, and colour-blind readers can distinguish
/// them (after the "viridis" colour maps, reversed).
constexpr std::array<Colour, 5> kColours = {
    {{253, 231, 37}, {94, 201, 98}, {33, 145, 140}, {59, 82, 139}, {68, 1, 84}}};

Colour At(double share) {
  const double place = std::clamp(share, 0.0, 1.0) * (kColours.size() - 1);
  const auto left = std::min(static_cast<std::size_t>(place), kColours.size() - 2);
  const double part = place - static_cast<double>(left);
  const auto mix = [part](double a, double b) { return a + part * (b - a); };
  const Colour &a = kColours[left], &b = kColours[left + 1];
  return {mix(a.red, b.red), mix(a.green, b.green), mix(a.blue, b.blue)};
}

std::string Hex(const Colour& c) {
  return fmt::format("#{:02x}{:02x}{:02x}", static_cast<int>(c.red), static_cast<int>(c.green),
                     static_cast<int>(c.blue));
}

/// Black or white, whichever is readable on the colour.
const char* InkOn(const Colour& c) {
  return 0.299 * c.red + 0.587 * c.green + 0.114 * c.blue > 140 ? "#000" : "#fff";
}

std::string Escaped(const std::string& text) {
  std::string out;
  for (char c : Printable(text, 60)) {
    out += c == '&'   ? "&amp;"
           : c == '<' ? "&lt;"
           : c == '>' ? "&gt;"
           : c == '"' ? "&quot;"
                      : std::string(1, c);
  }
  return out;
}

std::string Text(double x, double y, const char* anchor, const std::string& ink,
                 const std::string& text, const std::string& more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" fill=\"{}\"{}>{}</text>\n",
                     x, y, anchor, ink, more, text);
}

/// The range of bandwidths, as logarithms.
struct Range {
  double least = 0, most = 0;

  explicit Range(const LinkSquare& square) {
    bool first = true;
    for (std::size_t from = 0; from < square.Size(); ++from) {
      for (std::size_t to = 0; to < square.Size(); ++to) {
        if (square.At(from, to) == nullptr) continue;
        const double value = std::log(square.At(from, to)->bytes_per_second);
        least = first ? value : std::min(least, value);
        most = first ? value : std::max(most, value);
        first = false;
      }
    }
  }
  /// The scale spans at least a factor of two, so that links that differ little look alike.
  double Share(double bytes_per_second) const {
    const double width = std::max(most - least, std::log(2.0));
    return 1 - (most - std::log(bytes_per_second)) / width;
  }
};

/// Sizes that depend on the number of nodes and the length of their names.
struct Frame {
  double cell, left, top, side;
  bool labelled;

  explicit Frame(const LinkSquare& square) {
    std::size_t longest = 4;
    for (const std::string& name : square.Names())
      longest = std::max(longest, Escaped(name).size());
    const auto n = static_cast<double>(std::max<std::size_t>(square.Size(), 1));
    labelled = square.Size() <= 24;
    cell = labelled ? 62 : std::max(4.0, 1200 / n);
    const double names = static_cast<double>(longest) * kCharWidth;
    left = kMargin + names + 26;
    top = kMargin + 34 + (names > cell ? names : 18) + 22;
    side = n * cell;
  }
  bool Upright(const LinkSquare& square) const {
    return std::all_of(square.Names().begin(), square.Names().end(), [this](const auto& name) {
      return static_cast<double>(name.size()) * kCharWidth < cell;
    });
  }
};

std::string Cells(const LinkSquare& square, const Frame& frame, const Range& range, double now) {
  std::string svg;
  for (std::size_t from = 0; from < square.Size(); ++from) {
    for (std::size_t to = 0; to < square.Size(); ++to) {
      const LinkMeasurement* link = square.At(from, to);
      const double x = frame.left + static_cast<double>(to) * frame.cell;
      const double y = frame.top + static_cast<double>(from) * frame.cell;
      const Colour colour =
          link == nullptr ? Colour{238, 238, 238} : At(range.Share(link->bytes_per_second));
      svg += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\"/>\n", x,
          y, frame.cell - (frame.labelled ? 1.5 : 0), frame.cell - (frame.labelled ? 1.5 : 0),
          Hex(colour));
      if (!frame.labelled || from == to) continue;
      const double middle = x + frame.cell / 2 - 0.75;
      if (link == nullptr) {
        svg += Text(middle, y + frame.cell / 2 + 4, "middle", "#777", "?");
        continue;
      }
      const std::string rate = ShownRate(link->bytes_per_second);
      const auto space = rate.find(' ');
      svg += Text(middle, y + frame.cell / 2 - 9, "middle", InkOn(colour),
                  rate.substr(0, space) + MarksOf(*link, now), " font-weight=\"bold\"");
      svg += Text(middle, y + frame.cell / 2 + 5, "middle", InkOn(colour), rate.substr(space + 1),
                  " font-size=\"10\"");
      svg += Text(middle, y + frame.cell / 2 + 20, "middle", InkOn(colour),
                  ShownLatency(link->latency_s), " font-size=\"10\"");
    }
  }
  return svg;
}

std::string Names(const LinkSquare& square, const Frame& frame) {
  std::string svg;
  // Names that would overlap are left out evenly.
  const auto step = static_cast<std::size_t>(std::ceil((kFont + 2) / frame.cell));
  const bool upright = frame.Upright(square);
  for (std::size_t i = 0; i < square.Size(); i += step) {
    const double middle = (static_cast<double>(i) + 0.5) * frame.cell;
    const std::string name = Escaped(square.Names()[i]);
    svg += Text(frame.left - 8, frame.top + middle + 4, "end", "#222", name);
    const double x = frame.left + middle + (upright ? 0 : 4), y = frame.top - 8;
    svg += Text(x, y, upright ? "middle" : "start", "#222", name,
                upright ? "" : fmt::format(" transform=\"rotate(-90 {:.1f} {:.1f})\"", x, y));
  }
  const double centre = frame.side / 2;
  const double x = kMargin + 8, y = frame.top + centre;
  svg += Text(x, y, "middle", "#777", "from",
              fmt::format(" transform=\"rotate(-90 {:.1f} {:.1f})\"", x, y));
  svg += Text(frame.left + centre, kMargin + 34, "middle", "#777", "to");
  return svg;
}

std::string Scale(const Frame& frame, const Range& range, double bottom) {
  constexpr int kSteps = 40;
  const double width = std::max(240.0, std::min(frame.side, 420.0));
  const double most = std::exp(range.most);
  const double least = std::exp(range.most - std::max(range.most - range.least, std::log(2.0)));
  std::string svg;
  for (int i = 0; i < kSteps; ++i) {
    svg += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"12\" fill=\"{}\"/>\n",
        frame.left + width * i / kSteps, bottom + 20, width / kSteps + 0.5,
        Hex(At((i + 0.5) / kSteps)));
  }
  svg += Text(frame.left, bottom + 48, "start", "#222", ShownRate(least));
  svg += Text(frame.left + width / 2, bottom + 48, "middle", "#222",
              ShownRate(std::sqrt(least * most)));
  svg += Text(frame.left + width, bottom + 48, "end", "#222", ShownRate(most));
  return svg;
}

}  // namespace

std::string RenderLinkPicture(const Profile& profile, const std::string& title, double now) {
  const LinkSquare square(profile);
  const Frame frame(square);
  const Range range(square);
  const double bottom = frame.top + frame.side;
  const double width =
      std::max({frame.left + frame.side + kMargin, frame.left + 240 + kMargin,
                kMargin * 2 + static_cast<double>(title.size()) * kCharWidth * 1.25});
  const double height = bottom + kScaleHeight;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"sans-serif\" font-size=\"{2}\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
      width, height, kFont);
  svg += Text(kMargin, kMargin + 12, "start", "#000", Escaped(title),
              " font-size=\"16\" font-weight=\"bold\"");
  svg += Cells(square, frame, range, now) + Names(square, frame);
  if (square.Size() > 1) svg += Scale(frame, range, bottom);
  return svg + "</svg>\n";
}

}  // namespace adaptive_train
