#include "runtime/train/fault_injector.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace adaptive_train {
namespace {

bool IsOf(const Injection& injection, const std::string& node, int rank) {
  if (injection.kind == Injection::Kind::kFailSave) return rank == 0;
  return injection.rank >= 0 ? injection.rank == rank : injection.node == node;
}

}  // namespace

FaultInjector::FaultInjector(const std::vector<RunInjection>& all, const Plan& plan, int rank,
                             std::function<void(const Injection&)> tell)
    : tell_(std::move(tell)) {
  const std::string& node = plan.ranks[static_cast<std::size_t>(rank)].device.node;
  for (const RunInjection& one : all)
    if (!one.done && IsOf(one.injection, node, rank)) due_.push_back({one.injection});
}

double FaultInjector::BeginStep(std::int64_t step) {
  using Kind = Injection::Kind;
  double share = 1;
  for (Due& due : due_) {
    const Injection& asked = due.injection;
    if (asked.kind == Kind::kSlow && asked.step <= step && step <= asked.last_step) {
      share *= asked.percent / 100;
      if (!std::exchange(due.told, true)) tell_(asked);
    }
    if (asked.step != step || asked.kind == Kind::kSlow || asked.kind == Kind::kFailSave) continue;
    if (std::exchange(due.told, true)) continue;
    tell_(asked);
    // A rank of a node that is cut off neither says nor hears anything; nor does one that is
    // stopped.
    ::kill(::getpid(), asked.kind == Kind::kKill ? SIGKILL : SIGSTOP);
  }
  return share;
}

bool FaultInjector::FailsSave(std::int64_t step) {
  const auto found = std::ranges::find_if(due_, [step](const Due& due) {
    return due.injection.kind == Injection::Kind::kFailSave && due.injection.step <= step &&
           !due.told;
  });
  if (found == due_.end()) return false;
  found->told = true;
  tell_(found->injection);
  return true;
}

}  // namespace adaptive_train
