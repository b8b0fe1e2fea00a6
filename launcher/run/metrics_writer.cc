#include "launcher/run/metrics_writer.h"

#include <cerrno>
#include <utility>
#include <vector>

namespace adaptive_train {
namespace {

constexpr double kGiB = 1 << 30;

std::vector<Scalar> ScalarsOf(const StepMetrics& step) {
  std::vector<Scalar> scalars = {
      {"loss/train", step.loss},
      {"lr", step.lr},
      {"grad_norm", step.grad_norm},
      {"loss_scale", step.loss_scale},
      {"skipped", step.skipped ? 1.0 : 0.0},
      {"throughput/tokens_per_s", step.tokens_per_s},
      {"throughput/tflops", step.tflops},
      {"throughput/mfu", step.mfu},
      {"time/step_s", step.step_s},
      {"memory/peak_gib", static_cast<double>(step.peak_memory_bytes) / kGiB},
  };
  if (step.loss_z) scalars.push_back({"loss/z", *step.loss_z});
  if (step.validation_loss) {
    scalars.push_back({"loss/validation", *step.validation_loss});
    scalars.push_back({"perplexity/validation", Perplexity(*step.validation_loss)});
  }
  return scalars;
}

}  // namespace

Result<void> MetricsWriter::ResumeAfter(std::int64_t step) {
  return writer_.Post([this, step] {
    events_.reset();
    return folder_.CutMetrics(step);
  });
}

Result<void> MetricsWriter::Add(const StepMetrics& step) {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  return writer_.Post([this, step, wall_time = now.count()]() -> Result<void> {
    auto done = folder_.AppendMetrics(MetricsLine(step));
    if (done) done = AddEvent(step, wall_time);
    return done;
  });
}

Result<void> MetricsWriter::AddEvent(const StepMetrics& step, double wall_time) {
  for (bool again = true;; again = false) {
    if (!events_) {
      auto file = EventFile::Create(folder_.Path() + "/tensorboard", step.step, wall_time);
      if (!file) return tl::unexpected(file.error());
      events_.emplace(std::move(*file));
    }
    auto added = events_->Add(step.step, wall_time, ScalarsOf(step));
    if (added || !again || added.error().system_error != ESTALE) return added;
    events_.reset();
  }
}

}  // namespace adaptive_train
