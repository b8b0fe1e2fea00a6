// Finds ranks that compute for longer than expected, by evidence over many steps.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace adaptive_train {

/// A place (ReplicaTimes) that does not compute as long as expected.
struct OffPlace {
  std::size_t place = 0;
  double times = 1;  // as long as expected, compared with the others; above or below 1
  double error = 0;  // of `times`, relative: a standard error
};

/// Follows how long places compute, each relative to what is expected of it. That is compared with
/// the median of the same stage's other replicas (of two, the slower): neither an error that all
/// expectations share nor what holds up all counts.
///
/// A place is slow if both hold. In all but kDoubts of kWindow observations it took more than kOff
/// times as long. Their median is more than kOffPlan times as long as expected by itself. If the
/// true factor were kOff, less than one of 4,000 windows would show this, however times are
/// distributed. No single step counts for more than another.
///
/// An observation is one step. Shorter steps count together, since what an operating system does to
/// threads in turn lasts for many of them. No I/O; one thread.
class SlowPlaces {
 public:
  static constexpr std::size_t kWindow = 20;
  static constexpr std::size_t kDoubts = 2;
  static constexpr double kLeastSeconds = 0.25;  // of the steps of an observation
  static constexpr double kOff = 1.2;
  static constexpr double kOffPlan = 1.1;

  /// With two replicas or more.
  SlowPlaces(std::size_t places, int replicas);

  /// What a window has shown.
  struct Window {
    std::size_t steps = 0;
    std::optional<OffPlace> off;  // the fastest again, otherwise the slowest
  };
  /// One step of `step_s`: seconds computed and expected; index = place. Gives the window that ends
  /// with it; another one begins then. Where `may_be_fast`, a place that was slow is fast again by
  /// the same evidence the other way.
  std::optional<Window> Add(std::span<const double> computed_s, std::span<const double> expected_s,
                            double step_s, const std::vector<bool>& may_be_fast);
  /// Drops the steps of the window so far.
  void BeginWindow();

 private:
  void BeginObservation();
  std::vector<double> ComparedInStages(const std::vector<double>& alone) const;
  std::optional<OffPlace> Judge(const std::vector<bool>& may_be_fast);

  const std::size_t places_, replicas_;
  // Times as long as expected; index = place, then observation: alone, and compared with others.
  std::vector<std::vector<double>> alone_, compared_;
  std::size_t steps_ = 0;  // of the window so far
  double seconds_ = 0;     // of the observation so far; index of the others = place
  std::vector<double> computed_s_, expected_s_;
};

}  // namespace adaptive_train
