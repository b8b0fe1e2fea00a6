#include "runtime/train/trainer.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <xxhash.h>

#include <cmath>

#include "runtime/fatal_error.h"
#include "runtime/measure/product_peak.h"
#include "runtime/train/adamw_groups.h"

namespace adaptive_train {
namespace {

/// A collective ends at the pace of the slowest rank, whose step may take long; ranks that are gone
/// are found out by the control channel within seconds.
constexpr std::chrono::minutes kCommDeadline{15};
/// Every so many steps the replicas compare a hash of their parameters.
constexpr std::int64_t kReplicaCheckSteps = 50;

LrShape ShapeOf(const std::string& name) {
  if (name == "constant") return LrShape::kConstant;
  return name == "linear" ? LrShape::kLinear : LrShape::kCosine;
}

/// The caller's view of a fallible part that ends the rank when it fails.
template <class T>
T OrThrow(Result<T> result, RankExit code, const char* operation) {
  if (!result) throw FatalError(code, operation, FatalError::kNoPeer, result.error().message);
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

std::int64_t PeakMemoryBytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace

/// Where a step's time goes. The parts add up to the whole: `other` is what is left.
struct Trainer::Clock {
  using Steady = std::chrono::steady_clock;
  Steady::time_point begin = Steady::now();
  double compute = 0;
  double exposed_comm = 0;

  template <class Work>
  auto Time(double Clock::*part, Work work) {
    struct Add {
      Clock& clock;
      double Clock::*part;
      Steady::time_point from = Steady::now();
      ~Add() { clock.*part += std::chrono::duration<double>(Steady::now() - from).count(); }
    } add{*this, part};
    return work();
  }
  double Total() const { return std::chrono::duration<double>(Steady::now() - begin).count(); }
};

ModelDims DimsOf(const Config& config) {
  const ModelConfig& m = config.model;
  return {m.layers, m.heads, m.hidden, m.sequence, m.vocab, m.tie_embeddings};
}

Trainer::Trainer(const Config& config, const Plan& plan, int rank, kernels::Device<float>& device,
                 Communicator& communicator, const Datasets& data, TrainerEvents events)
    : config_(config),
      plan_(plan),
      share_(plan.ranks[static_cast<std::size_t>(rank)]),
      device_(device),
      communicator_(communicator),
      data_(data),
      events_(std::move(events)),
      dims_(DimsOf(config)),
      layout_(dims_, StageSlice::Whole(dims_)),
      parameters_(device, static_cast<std::size_t>(layout_.size())),
      gradients_(device, parameters_.size()),
      first_moments_(device, parameters_.size()),
      second_moments_(device, parameters_.size()),
      stage_(dims_, StageSlice::Whole(dims_), share_.micro_batch, device, parameters_.span(),
             gradients_.span()),
      reducer_(communicator, gradients_.span()),
      schedule_{ShapeOf(config.optimizer.schedule), config.optimizer.lr,
                config.optimizer.warmup_steps, config.train.steps},
      checkpoints_(config.checkpoint.dir, config.checkpoint.keep),
      product_peak_(MeasureProductPeak(device)),
      flops_per_token_(ModelShape::Of(dims_).TrainFlopsPerToken()) {
  InitializeParameters<float>(layout_, static_cast<std::uint64_t>(config.train.seed),
                              parameters_.span());
  first_moments_.Clear();
  second_moments_.Clear();
}

Deadline Trainer::CommDeadline() const { return std::chrono::steady_clock::now() + kCommDeadline; }

void Trainer::Await(tl::expected<void, CommError> outcome) const {
  if (!outcome)
    throw FatalError(RankExit::kTransport, outcome.error().operation, outcome.error().peer,
                     outcome.error().cause);
}

std::int64_t Trainer::Resume() {
  const std::int64_t newest = checkpoints_.Newest().value_or(0);
  // Sums of x and x^2 over P ranks fit one x only if all have the same.
  double seen[2] = {static_cast<double>(newest),
                    static_cast<double>(newest) * static_cast<double>(newest)};
  Await(communicator_.AllReduce(Purpose::kStatistic, std::span<double>(seen)).Wait(CommDeadline()));
  const double ranks = communicator_.Size();
  if (seen[0] * seen[0] != ranks * seen[1]) {
    throw FatalError(RankExit::kCheckpoint, "resume", FatalError::kNoPeer,
                     fmt::format("ranks see different newest checkpoints in {} (here step {})",
                                 config_.checkpoint.dir, newest));
  }
  if (newest == 0) return 0;
  TrainingState state = State();
  OrThrow(checkpoints_.Read(layout_, newest, state), RankExit::kCheckpoint, "reading a checkpoint");
  step_ = saved_step_ = newest;
  updates_ = state.updates;
  return newest;
}

std::int64_t Trainer::Run() {
  bool stop = false;
  while (step_ < config_.train.steps && !stop) {
    Clock clock;
    RankMetrics metrics;
    metrics.step = step_ + 1;
    const double loss = ForwardBackward(metrics.step, clock);
    clock.Time(&Clock::exposed_comm, [&] { Await(reducer_.Finish(CommDeadline())); });
    const Totals totals = SumOverRanks(loss, clock);
    metrics.loss = totals.loss / static_cast<double>(config_.train.global_batch * dims_.sequence);
    clock.Time(&Clock::compute, [&] { Update(metrics); });
    ++step_;
    stop = totals.stop;
    metrics.step_s = clock.Total();
    metrics.compute_s = clock.compute;
    metrics.exposed_comm_s = clock.exposed_comm;
    metrics.other_s = metrics.step_s - clock.compute - clock.exposed_comm;
    if (ValidationDue(step_)) metrics.validation_loss = Validate();
    if (step_ % kReplicaCheckSteps == 0) CheckReplicas();
    Fill(metrics);
    events_.on_step(metrics);
    const std::int64_t every = config_.checkpoint.every;
    if (stop || totals.save || step_ == config_.train.steps || (every > 0 && step_ % every == 0))
      Save();
  }
  return step_;
}

double Trainer::ForwardBackward(std::int64_t step, Clock& clock) {
  gradients_.Clear();
  const std::int64_t first = (step - 1) * config_.train.global_batch + share_.first_sample;
  const double scale = 1.0 / static_cast<double>(config_.train.global_batch * dims_.sequence);
  double loss = 0;
  for (std::int64_t done = 0; done < share_.samples;) {
    const std::int64_t batch = std::min(share_.micro_batch, share_.samples - done);
    LoadSamples(first + done, batch);
    done += batch;
    OnReady on_ready;
    if (done == share_.samples)
      on_ready = [this](std::size_t begin, std::size_t end) { reducer_.Add(begin, end); };
    const auto n = static_cast<std::size_t>(batch * dims_.sequence);
    loss += clock.Time(&Clock::compute, [&] {
      return stage_.ForwardBackward(std::span(tokens_).first(n), std::span(targets_).first(n),
                                    batch, scale, on_ready);
    });
  }
  return loss;
}

void Trainer::LoadSamples(std::int64_t first, std::int64_t count) {
  const auto length = static_cast<std::size_t>(dims_.sequence);
  tokens_.resize(static_cast<std::size_t>(count) * length);
  targets_.resize(tokens_.size());
  for (std::int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(i) * length;
    OrThrow(data_.train.Sample(first + i, std::span(tokens_).subspan(at, length),
                               std::span(targets_).subspan(at, length)),
            RankExit::kSetup, "reading training data");
  }
}

Trainer::Totals Trainer::SumOverRanks(double loss, Clock& clock) {
  // All ranks must stop and save after the same step, so what one has been told all learn here.
  double sums[3] = {loss, events_.stop_asked() ? 1.0 : 0.0,
                    events_.take_checkpoint_asked() ? 1.0 : 0.0};
  clock.Time(&Clock::exposed_comm, [&] {
    Await(
        communicator_.AllReduce(Purpose::kStatistic, std::span<double>(sums)).Wait(CommDeadline()));
  });
  return {sums[0], sums[1] > 0, sums[2] > 0};
}

void Trainer::Update(RankMetrics& metrics) {
  metrics.lr = schedule_.At(metrics.step);
  metrics.grad_norm = std::sqrt(device_.SquaredNorm(layout_.size(), gradients_.data()));
  if (!std::isfinite(metrics.grad_norm)) {
    metrics.skipped = true;
    return;
  }
  const OptimizerConfig& o = config_.optimizer;
  const double clip = o.clip > 0 && metrics.grad_norm > o.clip ? o.clip / metrics.grad_norm : 1.0;
  const AdamWSettings settings{o.beta1, o.beta2, 1e-8, o.weight_decay};
  const OptimizerArenas<float> arenas{parameters_.span(), gradients_.span(), first_moments_.span(),
                                      second_moments_.span()};
  ++updates_;
  AdamWStep<float>(device_, layout_, settings, arenas, 0, layout_.size(), updates_, metrics.lr,
                   clip);
}

bool Trainer::ValidationDue(std::int64_t step) const {
  const std::int64_t every = config_.train.validate_every;
  return step == config_.train.steps || (every > 0 && step % every == 0);
}

double Trainer::Validate() {
  const std::int64_t count = std::min(config_.train.validation_samples, data_.validation.samples());
  const auto length = static_cast<std::size_t>(dims_.sequence);
  tokens_.resize(length);
  targets_.resize(length);
  double loss = 0;
  for (std::int64_t i = share_.rank; i < count; i += communicator_.Size()) {
    OrThrow(data_.validation.Window(i, tokens_, targets_), RankExit::kSetup,
            "reading validation data");
    loss += stage_.Loss(tokens_, targets_, 1);
  }
  double sum[1] = {loss};
  Await(communicator_.AllReduce(Purpose::kStatistic, std::span<double>(sum)).Wait(CommDeadline()));
  return sum[0] / static_cast<double>(count * dims_.sequence);
}

TrainingState Trainer::State() {
  TrainingState state;
  state.step = step_;
  state.updates = updates_;
  // Heads are in no parameter's shape, and the others decide which samples the next step takes.
  state.identity =
      fmt::format("model.heads = {}, model.sequence = {}, train.global_batch = {}, train.seed = {}",
                  dims_.heads, dims_.sequence, config_.train.global_batch, config_.train.seed);
  state.parameters = parameters_.span();
  state.first_moments = first_moments_.span();
  state.second_moments = second_moments_.span();
  return state;
}

void Trainer::Save() {
  if (saved_step_ == step_) return;
  std::string failure;
  if (share_.rank == 0) {
    TrainingState state = State();
    auto path = checkpoints_.Write(layout_, state);
    if (path) {
      events_.on_saved(step_, *path);
    } else {
      failure = path.error().message;
    }
  }
  if (!failure.empty())
    throw FatalError(RankExit::kCheckpoint, "writing a checkpoint", FatalError::kNoPeer, failure);
  saved_step_ = step_;
}

void Trainer::CheckReplicas() {
  const auto hash = XXH3_64bits(parameters_.data(), parameters_.bytes());
  // Two halves per rank: each fits a double exactly, and only its owner adds to a place.
  std::vector<double> halves(2 * static_cast<std::size_t>(communicator_.Size()), 0.0);
  halves[2 * static_cast<std::size_t>(share_.rank)] = static_cast<double>(hash >> 32);
  halves[2 * static_cast<std::size_t>(share_.rank) + 1] = static_cast<double>(hash & 0xffff'ffff);
  Await(
      communicator_.AllReduce(Purpose::kStatistic, std::span<double>(halves)).Wait(CommDeadline()));
  for (std::size_t rank = 1; 2 * rank < halves.size(); ++rank) {
    if (halves[2 * rank] == halves[0] && halves[2 * rank + 1] == halves[1]) continue;
    throw FatalError(RankExit::kDiverged, "comparing replicas", static_cast<int>(rank),
                     fmt::format("parameters of rank {} on {} differ from rank 0's after step {}",
                                 rank, plan_.ranks[rank].device.node, step_));
  }
}

void Trainer::Fill(RankMetrics& metrics) {
  metrics.tokens = config_.train.global_batch * dims_.sequence;
  metrics.flops = flops_per_token_ * static_cast<double>(share_.samples * dims_.sequence);
  metrics.product_peak = product_peak_;
  std::array<std::int64_t, kPurposes> sent{};
  for (std::size_t p = 0; p < kPurposes; ++p)
    sent[p] = communicator_.BytesSent(static_cast<Purpose>(p));
  auto since_last = [&](Purpose p) {
    return sent[static_cast<std::size_t>(p)] - sent_before_[static_cast<std::size_t>(p)];
  };
  metrics.grad_bytes = since_last(Purpose::kGradient);
  metrics.param_bytes = since_last(Purpose::kParameter);
  metrics.activation_bytes = since_last(Purpose::kActivation);
  sent_before_ = sent;
  metrics.peak_memory_bytes = PeakMemoryBytes();
}

}  // namespace adaptive_train
