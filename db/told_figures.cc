#include "db/told_figures.h"

#include <algorithm>
#include <cmath>

#include "db/profile_merge.h"

namespace adaptive_train {
namespace {

template <class Measurement>
using Reports = std::vector<Report<Measurement>>;

/// Of two in the middle, kLow takes the lower.
enum class Middle { kLow, kHigh };

/// The median of what `number` gives for each report, without those at `left_out`. Not empty.
template <class Measurement, class Number>
double Median(const Reports<Measurement>& reports, Middle middle, const Number& number,
              std::optional<std::size_t> left_out = std::nullopt) {
  std::vector<double> numbers;
  for (std::size_t i = 0; i < reports.size(); ++i)
    if (i != left_out) numbers.push_back(number(reports[i].figure));
  const std::size_t at = middle == Middle::kLow ? (numbers.size() - 1) / 2 : numbers.size() / 2;
  std::nth_element(numbers.begin(), numbers.begin() + static_cast<std::ptrdiff_t>(at),
                   numbers.end());
  return numbers[at];
}

double SpeedOf(const LinkMeasurement& link) { return link.bytes_per_second; }
double SpeedOf(const DeviceMeasurement& device) { return device.product_flops; }

/// The figure of medians, without its evidence.
LinkMeasurement Medians(const Reports<LinkMeasurement>& reports) {
  LinkMeasurement told = reports.front().figure;
  told.bytes_per_second = Median(reports, Middle::kLow, [](const auto& x) { return SpeedOf(x); });
  told.latency_s = Median(reports, Middle::kHigh, [](const auto& x) { return x.latency_s; });
  return told;
}

DeviceMeasurement Medians(const Reports<DeviceMeasurement>& reports) {
  DeviceMeasurement told = reports.front().figure;
  told.product_flops = Median(reports, Middle::kLow, [](const auto& x) { return SpeedOf(x); });
  told.bytes_per_second =
      Median(reports, Middle::kLow, [](const auto& x) { return x.bytes_per_second; });
  Reports<DeviceMeasurement> moved = reports;
  std::erase_if(moved, [](const auto& report) { return report.figure.transfer_s_per_byte == 0; });
  told.transfer_s_per_byte = moved.empty() ? 0 : Median(moved, Middle::kHigh, [](const auto& x) {
    return x.transfer_s_per_byte;
  });
  return told;
}

template <class Measurement>
bool Disputed(const Reports<Measurement>& reports, double told) {
  for (std::size_t i = 0; i < reports.size(); ++i) {
    const double without = Median(
        reports, Middle::kLow, [](const auto& x) { return SpeedOf(x); }, i);
    if (std::abs(without - told) > kDisputedAbove * std::min(without, told)) return true;
  }
  return false;
}

template <class Measurement>
Evidence EvidenceOf(const Reports<Measurement>& reports, const Measurement& told) {
  Evidence evidence;
  for (const auto& report : reports)
    evidence.count += std::clamp<std::int64_t>(report.figure.evidence.count, 1, kMostCount);
  evidence.count = std::min(evidence.count, kMostCount);
  evidence.spread = Median(reports, Middle::kHigh, [](const auto& x) { return x.evidence.spread; });
  evidence.measured_at =
      Median(reports, Middle::kLow, [](const auto& x) { return x.evidence.measured_at; });
  evidence.trust = reports.size() < kConfirmingUsers  ? Trust::kUnconfirmed
                   : Disputed(reports, SpeedOf(told)) ? Trust::kDisputed
                                                      : Trust::kKnown;
  return evidence;
}

/// Leaves out what is too old beside the youngest.
template <class Measurement>
void KeepRecent(Reports<Measurement>& reports, double now) {
  double youngest = 0;
  for (auto& report : reports) {
    double& measured_at = report.figure.evidence.measured_at;
    measured_at = std::min(measured_at, now);
    youngest = std::max(youngest, measured_at);
  }
  std::erase_if(reports, [&](const auto& report) {
    return report.figure.evidence.measured_at < youngest - kReportWindow;
  });
}

template <class Measurement>
std::optional<Measurement> TellOne(Reports<Measurement> reports, Owner reader, double now) {
  if (reports.empty()) return std::nullopt;
  if (reports.size() == 1 && reports.front().owner == reader) return reports.front().figure;
  KeepRecent(reports, now);
  if (reports.size() < kConfirmingUsers) {
    const auto own = std::ranges::find(reports, reader, &Report<Measurement>::owner);
    if (own != reports.end()) return own->figure;
  }
  Measurement told = Medians(reports);
  told.evidence = EvidenceOf(reports, told);
  return told;
}

}  // namespace

std::optional<LinkMeasurement> Told(std::vector<Report<LinkMeasurement>> reports, Owner reader,
                                    double now) {
  return TellOne(std::move(reports), reader, now);
}

std::optional<DeviceMeasurement> Told(std::vector<Report<DeviceMeasurement>> reports, Owner reader,
                                      double now) {
  return TellOne(std::move(reports), reader, now);
}

}  // namespace adaptive_train
