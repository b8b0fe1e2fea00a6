// Which scalar a precision is.
#include "runtime/train/trainer.h"

#include <utility>

#include "runtime/train/training_loop.h"

namespace adaptive_train {

std::unique_ptr<Trainer> Trainer::Make(const Config& config, const Plan& plan, int rank,
                                       Communicator& communicator, const Datasets& data,
                                       TrainerEvents events) {
  switch (FormatOf(config.train).precision) {
    case Precision::kBf16:
      return std::make_unique<TrainingLoop<kernels::BFloat16>>(config, plan, rank, communicator,
                                                               data, std::move(events));
    case Precision::kFp16:
      return std::make_unique<TrainingLoop<kernels::Float16>>(config, plan, rank, communicator,
                                                              data, std::move(events));
    default:
      return std::make_unique<TrainingLoop<float>>(config, plan, rank, communicator, data,
                                                   std::move(events));
  }
}

}  // namespace adaptive_train
