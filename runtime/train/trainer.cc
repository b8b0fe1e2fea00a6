// Which scalar a precision is.
#include "runtime/train/trainer.h"

#include <utility>

#include "runtime/train/training_loop.h"

namespace adaptive_train {

std::unique_ptr<Trainer> Trainer::Make(const Config& config, const Plan& plan, int rank,
                                       Communicator& communicator, const Datasets& data,
                                       TrainerEvents events, const KeptRun& kept) {
  switch (FormatOf(config.train).precision) {
    case Precision::kBf16:
      return std::make_unique<TrainingLoop<kernels::BFloat16>>(config, plan, rank, communicator,
                                                               data, std::move(events), kept);
    case Precision::kFp16:
      return std::make_unique<TrainingLoop<kernels::Float16>>(config, plan, rank, communicator,
                                                              data, std::move(events), kept);
    default:
      return std::make_unique<TrainingLoop<float>>(config, plan, rank, communicator, data,
                                                   std::move(events), kept);
  }
}

}  // namespace adaptive_train
