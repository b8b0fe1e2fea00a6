// The links and devices of a profile as tables for people.
#pragma once

#include <string>
#include <vector>

#include "core/profile.h"

namespace adaptive_train {

/// "93.4 Mbit/s", "11.2 Gbit/s".
std::string ShownRate(double bytes_per_second);
/// "120 us", "1.3 ms".
std::string ShownLatency(double seconds);

/// A larger spread is marked: the link was busy, or its speed varies.
inline constexpr double kMarkedSpread = 0.15;

/// The links between nodes as a square, sorted by node names in natural order (n2 before n10).
class LinkSquare {
 public:
  explicit LinkSquare(const Profile& profile);

  const std::vector<std::string>& Names() const { return names_; }
  std::size_t Size() const { return names_.size(); }
  /// nullptr: not measured. The diagonal is always nullptr.
  const LinkMeasurement* At(std::size_t from, std::size_t to) const {
    return links_[from * names_.size() + to];
  }

 private:
  std::vector<std::string> names_;
  std::vector<const LinkMeasurement*> links_;
};

/// "*" if the figure is old, uncertain or disputed at the time `now`, "~" if it varies, "^" if nobody
/// confirms it; none of them else.
std::string MarksOf(const LinkMeasurement& link, double now);

/// Bandwidth and latency between nodes (rows: from, columns: to), a line for each node's device,
/// and an explanation of the marks if there are any. Lines end in '\n'. `profile` must live as long
/// as the call.
std::string RenderLinkTable(const Profile& profile, double now);

}  // namespace adaptive_train
