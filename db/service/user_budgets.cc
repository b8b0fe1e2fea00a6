#include "db/service/user_budgets.h"

#include <algorithm>

namespace adaptive_train {
namespace {

constexpr std::chrono::hours kDay{24};

}  // namespace

UserBudgets::Budget& UserBudgets::BudgetOf(uid_t user, Clock::time_point now) {
  Budget& budget = budgets_[user];
  if (budget.day_ends <= now) {
    budget.day_ends = now + kDay;
    budget.bytes = 0;
  }
  return budget;
}

/// The generic cell rate algorithm (ITU-T I.371), with a second's requests as its tolerance.
UserBudgets::Clock::duration UserBudgets::Wait(uid_t user, Clock::time_point now) {
  constexpr std::chrono::seconds kTolerance{1};
  Budget& budget = BudgetOf(user, now);
  budget.next_at =
      std::max(budget.next_at, now) +
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(1 / limits_.rate));
  return std::max(Clock::duration(0), budget.next_at - now - kTolerance);
}

bool UserBudgets::Spend(uid_t user, std::size_t bytes, Clock::time_point now) {
  Budget& budget = BudgetOf(user, now);
  if (budget.bytes + bytes > limits_.bytes_of_day) return false;
  budget.bytes += bytes;
  return true;
}

void UserBudgets::Forget(Clock::time_point now) {
  std::erase_if(budgets_, [&](const auto& entry) {
    return entry.second.day_ends <= now && entry.second.next_at <= now;
  });
}

}  // namespace adaptive_train
