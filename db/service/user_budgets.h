// How much each user of adaptive-traind may ask.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>

namespace adaptive_train {

/// A user's requests beyond a rate wait, those beyond a day's bytes are refused. So nobody takes
/// the service from others, or fills its disk overnight. One thread.
class UserBudgets {
 public:
  using Clock = std::chrono::steady_clock;

  struct Limits {
    /// Requests a second; as many may come at once.
    double rate = 1000;
    /// Of requests, from the user's first one of a day on.
    std::uint64_t bytes_of_day = std::uint64_t{256} << 20;
  };

  explicit UserBudgets(const Limits& limits) : limits_(limits) {}
  void Renew(const Limits& limits) { limits_ = limits; }

  /// Counts a request. How long it must wait for its turn.
  Clock::duration Wait(uid_t user, Clock::time_point now);
  /// Counts the request's bytes; false if they are more than what is left of the day.
  bool Spend(uid_t user, std::size_t bytes, Clock::time_point now);
  /// Forgets whose day is over.
  void Forget(Clock::time_point now);

 private:
  struct Budget {
    Clock::time_point day_ends;
    std::uint64_t bytes = 0;    // of this day
    Clock::time_point next_at;  // when requests that came evenly would be done
  };
  Budget& BudgetOf(uid_t user, Clock::time_point now);

  Limits limits_;
  std::map<uid_t, Budget> budgets_;
};

}  // namespace adaptive_train
