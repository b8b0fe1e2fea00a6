#include "launcher/run/plan_request.h"

#include <fmt/format.h>

#include <set>
#include <utility>

#include "core/asked_layout.h"
#include "core/device_kind.h"
#include "core/schedule/compute_order.h"
#include "core/seconds.h"

namespace adaptive_train {
namespace {

/// Whether `density` sets the amount sent, instead of the range of sparsities.
bool HasDensity(const CompressionOrders& compression) {
  return compression.mode == CompressionMode::kTopk ||
         compression.mode == CompressionMode::kGlobalTopk ||
         compression.mode == CompressionMode::kSketch;
}

constexpr double kInt4Bits = 4.125;  // of an element, with its part of a scale

/// The memory for residuals, their copy in a checkpoint's snapshot, and messages under way. The
/// last are estimated by their selection, or by a sketch's cells and peeling, from measured runs
/// (tests/bench/memory_prediction).
double FeedbackCopies(const CompressionOrders& compression) {
  constexpr double kResiduals = 2, kMessages = 1.5, kSketch = 2.5;
  if (compression.mode == CompressionMode::kSketch) return kResiduals + kSketch;
  // 1.5 copies are three of messages in bfloat16.
  if (compression.values == ValueEncoding::kInt4) return kResiduals + 3 * kInt4Bits / 32;
  const double density = HasDensity(compression) ? compression.density : 1 - compression.s_min;
  return kResiduals + kMessages * density;
}

/// The modes of docs/gradient_exchange.md. If layers differ in density, the middle represents all
/// of them until the warm-up measures it.
std::optional<CompressionRequest> CompressionOf(const Config& config) {
  const CompressionOrders asked = OrdersOf(config).compression;
  if (asked.mode == CompressionMode::kOff) return std::nullopt;
  CompressionRequest request;
  if (asked.mode == CompressionMode::kLocal) {
    request.local_steps = asked.local_steps;
    return request;
  }
  request.always = asked.mode != CompressionMode::kAuto;
  request.sketch = asked.mode == CompressionMode::kSketch;
  request.packed = asked.values == ValueEncoding::kInt4;
  request.density = request.packed      ? 1
                    : HasDensity(asked) ? asked.density
                                        : 1 - (asked.s_min + asked.s_max) / 2;
  constexpr double kPackedSizeBits = 5.7;  // for fp8, measured by tests/bench/exchange_speed
  request.value_bits = asked.values == ValueEncoding::kFp32   ? 32
                       : asked.values == ValueEncoding::kFp8  ? kPackedSizeBits
                       : asked.values == ValueEncoding::kInt4 ? kInt4Bits
                                                              : 16;
  if (config.parallel.shard.value_or(0) > 0) {
    request.gathered_bits = FormatOf(config.train).precision == Precision::kFp32 ? 32 : 16;
    if (config.parallel.gather == GatherFormat::kInt8) request.gathered_bits = 8.25;
  }
  request.feedback_copies = FeedbackCopies(asked);
  request.from_start = asked.mode == CompressionMode::kTopk;
  return request;
}

void AddLayout(const AskedLayout& asked, PlanRequest& request) {
  request.pipeline = asked.pipeline;
  request.cut = {0};
  for (const StageLayers& chunk : asked.chunks) request.cut.push_back(chunk.end_layer);
  // A schedule that is left to the planner stays open.
  if (request.schedule.Chunks() != asked.interleave) request.schedule.interleave = asked.interleave;
}

/// Names the first node: why all lack GPUs is seldom more than one reason.
tl::unexpected<Error> NoGpu(const std::vector<Node>& nodes) {
  return Fail(
      fmt::format("device.kind = cuda: no node of the job has a GPU ({}: {}); ask Slurm for "
                  "some with --gres=gpu:1, or set device.kind = \"cpu\"",
                  nodes.front().name,
                  nodes.front().gpus_status.status == "ok" ? "none is the job's"
                                                           : nodes.front().gpus_status.status),
      ExitCode::kPreflight);
}

/// What the site knows of such devices. One of which it knows nothing would be compared with the
/// others by an assumption: then all are taken as equal.
void SetKnownSpeeds(const std::vector<KnownSpeed>& speeds, std::vector<Device>& devices) {
  const auto known = [&](const Device& device) {
    return std::ranges::find(speeds, device.model, &KnownSpeed::model);
  };
  if (std::ranges::any_of(devices, [&](const Device& one) { return known(one) == speeds.end(); }))
    return;
  for (Device& device : devices) {
    const double whole = device.kind == "cpu" ? CpusOf(device) : 1;
    device.product_flops = known(device)->tflops * 1e12 * whole;
    device.copy_bytes_per_second = known(device)->copy_gb_per_s * 1e9 * whole;
  }
}

}  // namespace

PlanRequest RequestOf(const Config& config) {
  PlanRequest request;
  request.global_batch = config.train.global_batch;
  request.micro_batch = config.train.micro_batch;
  request.data = config.parallel.data;
  request.tensor = config.parallel.tensor;
  request.pipeline = config.parallel.pipeline;
  request.shard = config.parallel.shard;
  request.schedule = {ChoiceOf<ScheduleKind>(config.parallel.schedule), config.parallel.interleave,
                      config.parallel.schedule == "list"};
  if (const auto asked = AskedLayoutOf(config).value()) AddLayout(*asked, request);
  request.threads = config.device.threads;
  // Speeds of GPUs are not measured: there is nothing to choose by. Local steps need whole replicas.
  if (config.device.kind == "cuda" || config.compression.mode == CompressionMode::kLocal) {
    request.tensor = request.tensor.value_or(1);
    request.pipeline = request.pipeline.value_or(1);
    request.shard = request.shard.value_or(0);
  }
  if (request.schedule.list || request.schedule.kind == ScheduleKind::kZeroBubbleH1)
    request.recompute = Recompute::kNone;
  if (config.train.recompute != "auto") request.recompute = FormatOf(config.train).recompute;
  request.even_shares = config.parallel.shares == "even";
  request.reproducible = config.train.reproducible == Reproducible::kLayout;
  if (OrdersOf(config).compression.mode != CompressionMode::kOff)
    request.compression = CompressionOf(config);
  return request;
}

Cluster ClusterOf(const Allocation& allocation, const std::vector<NodeCheck>& checks,
                  const Config& config) {
  Cluster cluster;
  cluster.name = allocation.cluster;
  for (std::size_t i = 0; i < checks.size(); ++i) {
    Node node = checks[i].node;
    // Added before the control group's limit: if Slurm enforces the request, the two are equal.
    const int cpus = i < allocation.cpus.size() ? allocation.cpus[i] : 0;
    if (const auto limit = LimitOf(allocation.memory, cpus, checks[i].job_gpus))
      node.memory.limits.insert(node.memory.limits.begin(), *limit);
    cluster.nodes.push_back(std::move(node));
  }
  cluster.devices = DevicesOf(cluster.nodes, allocation.cpus, config.device.threads);
  if (config.device.kind == "cuda") cluster.devices = GpusOf(cluster.nodes, cluster.devices);
  SetKnownSpeeds(config.device.speeds, cluster.devices);
  return cluster;
}

Result<SeenNodes> SeeNodes(const Config& config, const Allocation& allocation,
                           const Programs& programs, const std::string& run_dir,
                           const std::vector<std::string>& readable) {
  NodeCheckRequest request;
  request.job_id = allocation.job_id;
  request.prolog_expected = allocation.options.has_value();
  request.run_dir = run_dir;
  request.readable = readable;
  request.launch = config.launch;
  auto checks = CheckAllNodes(allocation, request, programs.self, programs.probe);
  if (!checks) return tl::unexpected(checks.error());
  Cluster cluster = ClusterOf(allocation, *checks, config);
  if (cluster.devices.empty()) return NoGpu(cluster.nodes);
  return SeenNodes{std::move(*checks), std::move(cluster)};
}

ProfileQuery QueryOf(const Cluster& cluster, const Config& config) {
  ProfileQuery query;
  query.cluster = cluster.name;
  for (const Node& node : cluster.nodes) query.nodes.push_back(node.name);
  const auto kinds = KindsOf(cluster, RequestOf(config));
  query.device_kinds.assign(kinds.begin(), kinds.end());
  query.model_key = ModelKey(ModelShape::Of(DimsOf(config.model), FormatOf(config.train)));
  query.now = EpochSecondsNow();
  query.failure_half_life_s = config.recovery.half_life_days * 86400;
  return query;
}

}  // namespace adaptive_train
