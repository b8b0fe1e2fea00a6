// What adaptive-traind has done since it began, for whoever watches it.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "core/result.h"

namespace adaptive_train {

/// What the service holds at a moment.
struct ServiceLevels {
  std::size_t connections = 0, users = 0;
  std::uintmax_t database_bytes = 0, log_bytes = 0;  // of SQLite's write-ahead log
};

/// Prometheus's text format, version 0.0.4, or OpenMetrics 1.0, which differ little.
enum class MetricsFormat { kPrometheus, kOpenMetrics };

/// Counts of answers by request, and how long they took. From any thread; nothing in it names a
/// user, a job or a node.
class ServiceMetrics {
 public:
  /// `request`: as in docs/formats.md; "unreadable" for what was none. `seconds`: from the whole
  /// request's arrival to its answer.
  void Answered(std::string_view request, bool refused, double seconds);

  std::string Text(const ServiceLevels& levels, MetricsFormat format) const;

 private:
  /// Upper ends in seconds; the last one has none.
  static constexpr std::array kEnds{0.001, 0.005, 0.02, 0.05, 0.2, 1.0, 5.0};
  struct OfRequest {
    std::int64_t answered = 0, refused = 0;
    double seconds = 0;
    std::array<std::int64_t, kEnds.size()> within{};  // not cumulative
  };

  mutable std::mutex mutex_;
  std::map<std::string, OfRequest, std::less<>> requests_;
};

/// Puts `text` in the place of `path`, readable by all, as a whole. One line on failure.
Result<void> PublishMetrics(const std::filesystem::path& path, std::string_view text);

}  // namespace adaptive_train
