// The service's figures, letter by letter.
#include "db/service/service_metrics.h"

#include <gmock/gmock.h>

namespace adaptive_train::service_metrics_test {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(ServiceMetrics, CountsByRequestAndOutcomeWithTimesThatAddUp) {
  ServiceMetrics metrics;
  metrics.Answered("find_jobs", false, 0.0004);
  metrics.Answered("find_jobs", false, 0.05);
  metrics.Answered("find_jobs", true, 7);
  metrics.Answered("record", false, 0.003);
  const std::string text = metrics.Text({3, 2, 4096, 512}, MetricsFormat::kPrometheus);
  EXPECT_THAT(
      text,
      HasSubstr("adaptive_traind_requests_total{request=\"find_jobs\",outcome=\"answered\"} 2\n"
                "adaptive_traind_requests_total{request=\"find_jobs\",outcome=\"refused\"} 1\n"
                "adaptive_traind_requests_total{request=\"record\",outcome=\"answered\"} 1\n"));
  EXPECT_THAT(
      text,
      HasSubstr("adaptive_traind_request_seconds_bucket{request=\"find_jobs\",le=\"0.001\"} 1\n"
                "adaptive_traind_request_seconds_bucket{request=\"find_jobs\",le=\"0.005\"} 1\n"
                "adaptive_traind_request_seconds_bucket{request=\"find_jobs\",le=\"0.02\"} 1\n"
                "adaptive_traind_request_seconds_bucket{request=\"find_jobs\",le=\"0.05\"} 2\n"
                "adaptive_traind_request_seconds_bucket{request=\"find_jobs\",le=\"0.2\"} 2\n"
                "adaptive_traind_request_seconds_bucket{request=\"find_jobs\",le=\"1\"} 2\n"
                "adaptive_traind_request_seconds_bucket{request=\"find_jobs\",le=\"5\"} 2\n"
                "adaptive_traind_request_seconds_bucket{request=\"find_jobs\",le=\"+Inf\"} 3\n"
                "adaptive_traind_request_seconds_sum{request=\"find_jobs\"} 7.0504\n"
                "adaptive_traind_request_seconds_count{request=\"find_jobs\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("adaptive_traind_connections 3\n"));
  EXPECT_THAT(text, HasSubstr("adaptive_traind_users 2\n"));
  EXPECT_THAT(text, HasSubstr("adaptive_traind_database_bytes 4096\n"));
  EXPECT_THAT(text, HasSubstr("adaptive_traind_log_bytes 512\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE adaptive_traind_requests_total counter\n"));
  EXPECT_THAT(text, Not(HasSubstr("EOF")));
}

TEST(ServiceMetrics, OpenMetricsNamesTheFamilyOfACounterAndEndsWithItsEnd) {
  ServiceMetrics metrics;
  metrics.Answered("record", false, 0.003);
  const std::string text = metrics.Text({3, 2, 4096, 512}, MetricsFormat::kOpenMetrics);
  EXPECT_THAT(text, HasSubstr("# TYPE adaptive_traind_requests counter\n"));
  EXPECT_THAT(text, HasSubstr("adaptive_traind_requests_total{request=\"record\""));
  EXPECT_THAT(text, EndsWith("\n# EOF\n"));
}

}  // namespace
}  // namespace adaptive_train::service_metrics_test
