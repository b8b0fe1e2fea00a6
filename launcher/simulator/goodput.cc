#include "launcher/simulator/goodput.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <vector>

#include "core/counter_random.h"

namespace adaptive_train {
namespace {

/// One run. Its clock is in seconds, its work in seconds of training on all nodes.
class RunLife {
 public:
  RunLife(const GoodputCase& run, std::uint64_t seed)
      : run_(run), random_(seed, RandomPurpose::kSimulation) {}

  Goodput Play() {
    NewJob();
    if (!Pass(run_.launch_s, down_)) Recover();
    while (!Over()) {
      if (!Train() || !Save()) Recover();
    }
    return Result();
  }

 private:
  struct Written {
    double work = 0, at = 0;  // can be read from then on
  };

  bool Over() const { return now_ >= run_.horizon_s; }
  double Speed() const { return static_cast<double>(nodes_) / run_.nodes; }
  double Kept() const { return run_.memory_steps * run_.step_s; }

  double Uniform() {
    const std::uint32_t bits = random_.Bits({.element = drawn_++});
    return (bits + 0.5) * 0x1p-32;
  }

  double UntilFailure() {
    const int alive = nodes_ + spares_;
    if (alive == 0) return std::numeric_limits<double>::infinity();
    return -std::log(Uniform()) * run_.node_mtbf_s / alive;
  }

  void NewJob() {
    nodes_ = run_.nodes;
    spares_ = run_.spares;
  }

  /// Spends seconds with the nodes held, up to the horizon. False: a node that trains has failed.
  bool Pass(double seconds, double& total) {
    while (true) {
      const double until = UntilFailure();
      const double slice = std::min({until, seconds, run_.horizon_s - now_});
      now_ += slice;
      total += slice;
      seconds -= slice;
      if (slice < until || Over()) return true;
      if (Uniform() * (nodes_ + spares_) >= spares_) break;
      --spares_;
    }
    --nodes_;
    ++failures_;
    return false;
  }

  /// Until the next save. What keeping state in memory costs is a part of each step.
  bool Train() {
    const double pace = Speed() / (1 + run_.memory_share);
    const double before = training_;
    const bool passed = Pass((next_save_ - work_) / pace, training_);
    work_ += pace * (training_ - before);
    saving_ += (training_ - before) * run_.memory_share / (1 + run_.memory_share);
    return passed;
  }

  bool Save() {
    if (Over()) return true;
    work_ = next_save_;
    next_save_ += run_.interval_s;
    if (!Pass(run_.save_s, saving_)) return false;
    FinishWriting();
    written_.push_back({work_, now_ + run_.write_s});
    return true;
  }

  void FinishWriting() {
    const auto begun = std::find_if(written_.begin(), written_.end(),
                                    [this](const Written& written) { return written.at > now_; });
    if (begun != written_.begin()) saved_ = std::prev(begun)->work;
    written_.erase(written_.begin(), begun);
  }

  void Recover() {
    while (!Over()) {
      const bool from_disk = RollBack();
      const bool stays = run_.after == AfterFailure::kSameAllocation &&
                         nodes_ + std::min(spares_, 1) >= run_.least_share * run_.nodes;
      if (!stays && !from_disk) saved_ = work_;  // before the job ends
      if (stays ? GoOn(from_disk) : ComeBack()) return;
    }
  }

  /// To the newest state. Gives whether it is one on disk.
  bool RollBack() {
    FinishWriting();
    written_.clear();
    const bool copy_lost = work_ < whole_again_ && Uniform() * nodes_ < 1;
    const bool memory =
        run_.memory_steps > 0 && run_.after == AfterFailure::kSameAllocation && !copy_lost;
    const double state = memory ? std::max(saved_, std::floor(work_ / Kept()) * Kept()) : saved_;
    again_ += work_ - state;
    work_ = state;
    whole_again_ = (std::floor(work_ / std::max(Kept(), run_.step_s)) + 1) * Kept();
    next_save_ = work_ + run_.interval_s;
    return !memory;
  }

  bool GoOn(bool from_disk) {
    if (spares_ > 0) {
      --spares_;
      ++nodes_;
    }
    return Pass(run_.detection_s + run_.restart_s + (from_disk ? run_.read_s : 0), down_);
  }

  /// Nobody's nodes fail while the run has none.
  bool ComeBack() {
    const double wait =
        run_.detection_s + run_.queue_s + (run_.after == AfterFailure::kByHand ? run_.notice_s : 0);
    const double until = std::min(now_ + wait, run_.horizon_s);
    down_ += until - now_;
    now_ = until;
    NewJob();
    return Pass(run_.launch_s, down_);
  }

  Goodput Result() const {
    const double all = run_.horizon_s * (run_.nodes + run_.spares) / run_.nodes;
    Goodput shares{.useful = work_ / all,
                   .again = again_ / all,
                   .saving = saving_ / all,
                   .down = down_ / all,
                   .failures = failures_};
    shares.missing = std::max(0.0, 1 - shares.useful - shares.again - shares.saving - shares.down);
    return shares;
  }

  const GoodputCase& run_;
  const CounterRandom random_;
  std::uint64_t drawn_ = 0;
  int nodes_ = 0, spares_ = 0;
  double now_ = 0;
  double work_ = 0, saved_ = 0;  // done; of the newest checkpoint that can be read
  double next_save_ = run_.interval_s;
  double whole_again_ = 0;        // work from which on every state has its copy
  std::vector<Written> written_;  // or still being written
  double training_ = 0, again_ = 0, saving_ = 0, down_ = 0;
  std::int64_t failures_ = 0;
};

}  // namespace

Goodput SimulateGoodput(const GoodputCase& run, std::uint64_t seed) {
  return RunLife(run, seed).Play();
}

double YoungDalyInterval(double save_s, double mtbf_s) {
  if (save_s >= 2 * mtbf_s) return mtbf_s;
  const double ratio = save_s / (2 * mtbf_s);
  return std::sqrt(2 * save_s * mtbf_s) * (1 + std::sqrt(ratio) / 3 + ratio / 9) - save_s;
}

}  // namespace adaptive_train
