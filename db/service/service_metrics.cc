#include "db/service/service_metrics.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/file_io.h"

namespace adaptive_train {
namespace {

std::string Head(const char* name, const char* type, const char* help) {
  return fmt::format("# HELP {0} {2}\n# TYPE {0} {1}\n", name, type, help);
}

std::string Gauge(const char* name, const char* help, std::uintmax_t value) {
  return Head(name, "gauge", help) + fmt::format("{} {}\n", name, value);
}

}  // namespace

void ServiceMetrics::Answered(std::string_view request, bool refused, double seconds) {
  const std::lock_guard lock(mutex_);
  auto found = requests_.find(request);
  if (found == requests_.end()) found = requests_.emplace(request, OfRequest{}).first;
  OfRequest& one = found->second;
  ++(refused ? one.refused : one.answered);
  one.seconds += seconds;
  const auto end = std::ranges::lower_bound(kEnds, seconds);
  if (end != kEnds.end()) ++one.within[static_cast<std::size_t>(end - kEnds.begin())];
}

std::string ServiceMetrics::Text(const ServiceLevels& levels, MetricsFormat format) const {
  const std::lock_guard lock(mutex_);
  const bool open = format == MetricsFormat::kOpenMetrics;
  // OpenMetrics calls a counter's family by its name without the suffix.
  std::string text = Head(open ? "adaptive_traind_requests" : "adaptive_traind_requests_total",
                          "counter", "Requests that were answered or refused.");
  for (const auto& [request, one] : requests_) {
    text += fmt::format(
        "adaptive_traind_requests_total{{request=\"{0}\",outcome=\"answered\"}} {1}\n"
        "adaptive_traind_requests_total{{request=\"{0}\",outcome=\"refused\"}} {2}\n",
        request, one.answered, one.refused);
  }
  text += Head("adaptive_traind_request_seconds", "histogram",
               "From a whole request to its answer; of writes, which is on disk then.");
  for (const auto& [request, one] : requests_) {
    std::int64_t so_far = 0;
    for (std::size_t i = 0; i < kEnds.size(); ++i) {
      so_far += one.within[i];
      text += fmt::format("adaptive_traind_request_seconds_bucket{{request=\"{}\",le=\"{}\"}} {}\n",
                          request, kEnds[i], so_far);
    }
    text += fmt::format(
        "adaptive_traind_request_seconds_bucket{{request=\"{0}\",le=\"+Inf\"}} {1}\n"
        "adaptive_traind_request_seconds_sum{{request=\"{0}\"}} {2}\n"
        "adaptive_traind_request_seconds_count{{request=\"{0}\"}} {1}\n",
        request, one.answered + one.refused, one.seconds);
  }
  return text + Gauge("adaptive_traind_connections", "Open connections.", levels.connections) +
         Gauge("adaptive_traind_users", "Users with a connection.", levels.users) +
         Gauge("adaptive_traind_database_bytes", "The database's file.", levels.database_bytes) +
         Gauge("adaptive_traind_log_bytes", "The database's write-ahead log.", levels.log_bytes) +
         (open ? "# EOF\n" : "");
}

Result<void> PublishMetrics(const std::filesystem::path& path, std::string_view text) {
  const std::string whole = path.string() + ".new";
  auto written = WriteFile(whole, text);
  if (!written) return written;
  if (::chmod(whole.c_str(), 0644) == 0 && ::rename(whole.c_str(), path.c_str()) == 0) return {};
  return Fail(fmt::format("{}: {}", path.string(), std::strerror(errno)), ExitCode::kStore);
}

}  // namespace adaptive_train
