#include "db/told_figures.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "db/profile_merge.h"

namespace adaptive_train {
namespace {

template <class Measurement>
using Reports = std::vector<Report<Measurement>>;

/// Of two in the middle, kLow takes the lower.
enum class Middle { kLow, kHigh };

/// What `number` gives for each report, in ascending order.
template <class Measurement, class Number>
std::vector<double> Sorted(const Reports<Measurement>& reports, const Number& number) {
  std::vector<double> numbers;
  for (const auto& report : reports) numbers.push_back(number(report.figure));
  std::ranges::sort(numbers);
  return numbers;
}

/// Not of an empty list.
template <class Measurement, class Number>
double Median(const Reports<Measurement>& reports, Middle middle, const Number& number) {
  const std::vector<double> numbers = Sorted(reports, number);
  return numbers[middle == Middle::kLow ? (numbers.size() - 1) / 2 : numbers.size() / 2];
}

double SpeedOf(const LinkMeasurement& link) { return link.bytes_per_second; }
double SpeedOf(const DeviceMeasurement& device) { return device.product_flops; }

/// The figure of medians, without its evidence.
LinkMeasurement Medians(const Reports<LinkMeasurement>& reports, Owner) {
  LinkMeasurement told = reports.front().figure;
  told.bytes_per_second = Median(reports, Middle::kLow, [](const auto& x) { return SpeedOf(x); });
  told.latency_s = Median(reports, Middle::kHigh, [](const auto& x) { return x.latency_s; });
  return told;
}

double TransferOf(const Reports<DeviceMeasurement>& reports, Owner reader) {
  Reports<DeviceMeasurement> measured = reports;
  std::erase_if(measured,
                [](const auto& report) { return report.figure.transfer_s_per_byte == 0; });
  const auto transfer = [](const auto& device) { return device.transfer_s_per_byte; };
  if (measured.size() >= kConfirmingUsers) return Median(measured, Middle::kHigh, transfer);
  const auto own = std::ranges::find(measured, reader, &Report<DeviceMeasurement>::owner);
  return own == measured.end() ? 0 : transfer(own->figure);
}

DeviceMeasurement Medians(const Reports<DeviceMeasurement>& reports, Owner reader) {
  DeviceMeasurement told = reports.front().figure;
  told.product_flops = Median(reports, Middle::kLow, [](const auto& x) { return SpeedOf(x); });
  told.bytes_per_second =
      Median(reports, Middle::kLow, [](const auto& x) { return x.bytes_per_second; });
  told.transfer_s_per_byte = TransferOf(reports, reader);
  return told;
}

/// Whether the lower median would be another without one of them. In ascending order it moves to a
/// neighbour at most.
template <class Measurement>
bool Disputed(const Reports<Measurement>& reports) {
  const std::vector<double> speeds = Sorted(reports, [](const auto& x) { return SpeedOf(x); });
  const double told = speeds[(speeds.size() - 1) / 2];
  const std::size_t without = (speeds.size() - 2) / 2;
  const auto differs = [&](double other) {
    return std::abs(other - told) > kDisputedAbove * std::min(other, told);
  };
  return differs(speeds[without]) || differs(speeds[without + 1]);
}

template <class Measurement>
Evidence EvidenceOf(const Reports<Measurement>& reports) {
  Evidence evidence;
  for (const auto& report : reports)
    evidence.count += std::clamp<std::int64_t>(report.figure.evidence.count, 1, kMostCount);
  evidence.count = std::min(evidence.count, kMostCount);
  evidence.spread = Median(reports, Middle::kHigh, [](const auto& x) { return x.evidence.spread; });
  evidence.measured_at =
      Median(reports, Middle::kLow, [](const auto& x) { return x.evidence.measured_at; });
  return evidence;
}

template <class Measurement>
std::optional<Measurement> TellOne(Reports<Measurement> reports, Owner reader, double now) {
  if (reports.empty()) return std::nullopt;
  Reports<Measurement> recent = reports;
  std::erase_if(recent, [&](const auto& report) {
    return report.figure.evidence.measured_at < now - kReportWindow;
  });
  const bool confirmed = recent.size() >= kConfirmingUsers;
  if (!confirmed) {
    const auto own = std::ranges::find(reports, reader, &Report<Measurement>::owner);
    if (own != reports.end()) return own->figure;
  } else {
    reports = std::move(recent);
  }
  Measurement told = Medians(reports, reader);
  told.evidence = EvidenceOf(reports);
  told.evidence.trust = !confirmed          ? Trust::kUnconfirmed
                        : Disputed(reports) ? Trust::kDisputed
                                            : Trust::kKnown;
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
