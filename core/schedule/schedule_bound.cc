#include <algorithm>
#include <cmath>

#include "core/schedule/list_schedule.h"

namespace adaptive_train {
namespace {

/// What surrounds a stage, for one micro-batch.
struct StageWay {
  double before = 0;  // until its input is there
  double round = 0;   // from the end of its forward to the begin of its backward
  double after = 0;   // from the end of its input gradient to the end of all that follows
};

class Bound {
 public:
  explicit Bound(const UnevenPipeline& pipeline)
      : pipeline_(pipeline), stages_(pipeline.costs.stages) {}

  double Seconds() const {
    double bound = 0;
    for (std::size_t stage = 0; stage < stages_.size(); ++stage)
      bound = std::max(bound, OfStage(stage));
    for (int rank = 0; rank < pipeline_.ranks; ++rank) bound = std::max(bound, OfRank(rank));
    return bound;
  }

 private:
  double Transfer(std::size_t stage) const {  // to the next
    return pipeline_.ranks > 1 ? pipeline_.costs.transfer_s[stage] : 0;
  }

  StageWay WayOf(std::size_t stage) const {
    StageWay way;
    for (std::size_t s = 0; s < stage; ++s) way.before += stages_[s].forward + Transfer(s);
    for (std::size_t s = stage + 1; s < stages_.size(); ++s)
      way.round += stages_[s].forward + stages_[s].backward_input + 2 * Transfer(s - 1);
    way.after = stages_[stage].backward_weight;
    double chain = 0;
    for (std::size_t s = stage; s-- > 0;) {
      chain += Transfer(s) + stages_[s].backward_input;
      way.after = std::max(way.after, chain + stages_[s].backward_weight);
    }
    return way;
  }

  double OfStage(std::size_t stage) const {
    const StageSeconds& its = stages_[stage];
    const double m = pipeline_.micro_batches;
    const double bytes = pipeline_.activation_bytes[stage];
    const double limit =
        pipeline_.rank_bytes[stage % static_cast<std::size_t>(pipeline_.ranks)] * (1 + 1e-9);
    const double held = bytes > 0 ? std::min(m, std::floor(limit / bytes)) : m;
    const StageWay way = WayOf(stage);
    const double both = its.backward_input + its.backward_weight;
    const double work = m * (its.forward + both);
    const double first_idle = std::max(0.0, way.round - (held - 1) * its.forward);
    const double last_idle =
        std::max(0.0, way.round + its.backward_input + way.after - held * both);
    const double idle = held < m ? first_idle + last_idle : std::max(first_idle, last_idle);
    const double trip = its.forward + way.round + its.backward_input;
    const double rounds = std::floor((m - 1) / held) * (trip + its.backward_weight);
    return way.before + std::max(work + idle, rounds + trip + way.after);
  }

  double OfRank(int rank) const {
    double work = 0;
    for (std::size_t s = static_cast<std::size_t>(rank); s < stages_.size();
         s += static_cast<std::size_t>(pipeline_.ranks))
      work += stages_[s].forward + stages_[s].backward_input + stages_[s].backward_weight;
    return WayOf(static_cast<std::size_t>(rank)).before + pipeline_.micro_batches * work;
  }

  const UnevenPipeline& pipeline_;
  const std::vector<StageSeconds>& stages_;
};

}  // namespace

double ScheduleBound(const UnevenPipeline& pipeline) { return Bound(pipeline).Seconds(); }

}  // namespace adaptive_train
