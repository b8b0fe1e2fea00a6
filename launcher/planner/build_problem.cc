#include "launcher/planner/build_problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "core/device_kind.h"
#include "core/limits.h"
#include "core/orders.h"
#include "launcher/planner/device_slowness.h"
#include "launcher/planner/layer_times.h"
#include "launcher/planner/nominal_links.h"

namespace adaptive_train {

double CpusOf(const Device& device) {
  return device.cpus > 0 ? std::min<double>(device.cpus, device.threads) : device.threads;
}

namespace {

/// The assumed speed of one CPU if nothing but the number of CPUs is known.
constexpr DeviceSpeed kAssumedCpu{30e9, 5e9};
/// FLOPs of products in the time in which memory copies a byte, if only products are known.
constexpr double kAssumedIntensity = 60;
/// On devices of which each has several.
constexpr std::int64_t kMostSharing = 65536;
/// Each decayed failure makes a node count as this much slower.
constexpr double kFailureWeight = 0.1;

tl::unexpected<Error> NoPlan(std::string why) {
  return Fail("no feasible plan: " + std::move(why), ExitCode::kNoPlan);
}

std::map<std::string, int> IndexOf(const Cluster& cluster) {
  std::map<std::string, int> index;
  for (const Node& node : cluster.nodes) index.emplace(node.name, static_cast<int>(index.size()));
  return index;
}

/// More threads than CPUs would only be throttled together.
int ThreadsOf(const Device& device, const std::optional<std::int64_t>& wanted) {
  if (wanted) return static_cast<int>(*wanted);
  return std::max(1, std::min(device.threads, static_cast<int>(std::ceil(CpusOf(device)))));
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

/// Processor seconds per byte moved, the median over nodes with processors of this model; 0 where
/// none was measured. Quotas and numbers of threads make no difference to it.
double MedianTransfer(const Profile& profile, const std::string& model) {
  std::vector<double> seconds;
  for (const DeviceMeasurement& measured : profile.devices) {
    if (measured.transfer_s_per_byte > 0 && measured.device_kind.starts_with(model + ","))
      seconds.push_back(measured.transfer_s_per_byte);
  }
  return Median(seconds);
}

/// The median over the nodes where a kind was measured; zeros if nowhere.
DeviceSpeed MedianSpeed(const Profile& profile, const std::string& name) {
  std::vector<double> products, copies;
  for (const DeviceMeasurement& measured : profile.devices) {
    if (measured.device_kind != name) continue;
    products.push_back(measured.product_flops);
    copies.push_back(measured.bytes_per_second);
  }
  return {Median(products), Median(copies)};
}

/// The cluster's devices. If more ranks than devices are requested, several ranks share each
/// processor: the fastest processors get more, and split CPUs, memory and measured speed. Requested
/// tensor ranks share one processor, since they must be on one node. GPUs are not shared.
std::vector<Device> RankDevices(const Cluster& cluster, const PlanRequest& request,
                                const Profile& profile, std::vector<std::string>& notes) {
  const std::size_t devices = cluster.devices.size();
  const auto wanted = static_cast<std::size_t>(
      std::min(kMostSharing, request.data.value_or(1) * request.pipeline.value_or(1)));
  std::vector<std::size_t> order, ranks_on(devices, 1);
  for (std::size_t d = 0; d < devices; ++d) {
    if (cluster.devices[d].kind == "cpu") order.push_back(d);
  }
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return cluster.devices[a].cpus > cluster.devices[b].cpus;
  });
  for (std::size_t i = devices; i < wanted && !order.empty(); ++i)
    ++ranks_on[order[i % order.size()]];
  const std::int64_t tensor = request.tensor.value_or(1);
  for (const std::size_t d : order) {
    const auto on_node = std::count_if(order.begin(), order.end(), [&](std::size_t other) {
      return cluster.devices[other].node == cluster.devices[d].node;
    });
    if (on_node < tensor) ranks_on[d] *= static_cast<std::size_t>(tensor);
  }
  std::vector<Device> chosen;
  for (std::size_t d = 0; d < devices; ++d) {
    Device device = cluster.devices[d];
    const auto share = static_cast<int>(ranks_on[d]);
    if (const DeviceSpeed whole = MedianSpeed(profile, DeviceKindName(device));
        share > 1 && whole.product_flops > 0) {
      device.product_flops = whole.product_flops;
      device.copy_bytes_per_second = whole.copy_bytes_per_second;
    }
    device.cpus = (device.cpus > 0 ? device.cpus : device.threads) / share;
    device.threads = std::max(1, device.threads / share);
    device.memory_bytes /= share;
    device.product_flops /= share;
    device.copy_bytes_per_second /= share;
    if (device.kind == "cpu") device.threads = ThreadsOf(device, request.threads);
    chosen.insert(chosen.end(), ranks_on[d], device);
    if (share > 1)
      notes.push_back(
          fmt::format("{} runs {} ranks, which share its CPUs and memory", device.node, share));
  }
  return chosen;
}

/// Speeds by kind. Devices of one kind are equal in everything that affects times.
class Kinds {
 public:
  Kinds(const ModelShape& shape, const Profile& profile, BuiltProblem& built)
      : shape_(shape), profile_(profile), built_(built) {}

  int Of(const Device& device) {
    const std::string name = DeviceKindName(device);
    const Slowness slowness = SlownessOf(profile_, name, device.node);
    const double slower = slowness.shown;
    if (slower == 1 && std::abs(std::log(slowness.measured)) > std::log1p(kSameSpeed))
      Note(fmt::format(
          "{}: measured speeds of such devices differ, but not for sure: taken as equal", name));
    const auto key = std::make_tuple(name, device.product_flops, device.copy_bytes_per_second,
                                     device.cpus, slower);
    const auto [at, is_new] = index_.emplace(key, static_cast<int>(built_.problem.kinds.size()));
    if (is_new) built_.problem.kinds.push_back(Make(name, device, slower));
    if (is_new) slowest_copy_ = std::min(slowest_copy_, CopySpeed(name, device) / slower);
    return at->second;
  }
  /// Bytes per second of the slowest device.
  double SlowestCopy() const { return slowest_copy_; }

 private:
  DeviceSpeed SpeedOf(const std::string& name) const { return MedianSpeed(profile_, name); }

  /// Adds the note once if kinds differ only by node.
  void Note(std::string note) {
    auto& notes = built_.notes;
    if (std::find(notes.begin(), notes.end(), note) == notes.end())
      notes.push_back(std::move(note));
  }

  DeviceKind Make(const std::string& name, const Device& device, double slower) {
    DeviceKind kind;
    kind.name = name;
    auto measured = MeasuredLayers(shape_, profile_, name, ModelKey(shape_));
    kind.measured = measured.has_value();
    if (measured) {
      kind.layers = std::move(measured->seconds);
      Note(fmt::format("{}: its layers' times are measured{}", name,
                       measured->elsewhere.empty()
                           ? ""
                           : fmt::format(", those of {} on another kind of device",
                                         fmt::join(measured->elsewhere, " and "))));
    } else {
      kind.layers = EstimatedLayers(shape_, EstimatedSpeed(name, device));
    }
    for (LayerSeconds& layer : kind.layers) {
      for (double* part : {&layer.forward.fixed, &layer.forward.per_sample, &layer.backward.fixed,
                           &layer.backward.per_sample, &layer.update, &layer.weight_gradients.fixed,
                           &layer.weight_gradients.per_sample})
        *part *= slower;
    }
    kind.transfer_s_per_byte = TransferSeconds(device);
    if (slower > 1)
      Note(fmt::format("{}: {:.2f} times as slow as others of its kind", device.node, slower));
    if (slower < 1)
      Note(fmt::format("{}: {:.2f} times as fast as others of its kind", device.node, 1 / slower));
    return kind;
  }

  /// If every CPU computes, one of them has to move messages as well.
  double TransferSeconds(const Device& device) const {
    if (device.kind != "cpu") return 0;
    const double cpus = device.cpus > 0 ? device.cpus : device.threads;
    const double shared = std::clamp(device.threads + 1 - cpus, 0.0, 1.0);
    return shared * MedianTransfer(profile_, device.model) / std::min(1.0, cpus);
  }

  /// The copy speed: measured, else given by the cluster, else derived from products, else assumed.
  double CopySpeed(const std::string& name, const Device& device) const {
    double copy = SpeedOf(name).copy_bytes_per_second;
    if (copy <= 0) copy = device.copy_bytes_per_second;
    if (copy <= 0) copy = device.product_flops / kAssumedIntensity;
    if (copy <= 0) copy = kAssumedCpu.copy_bytes_per_second * CpusOf(device);
    return copy;
  }

  DeviceSpeed EstimatedSpeed(const std::string& name, const Device& device) {
    DeviceSpeed speed = SpeedOf(name);
    if (speed.product_flops <= 0) speed = {device.product_flops, device.copy_bytes_per_second};
    const double cpus = CpusOf(device);
    if (speed.product_flops <= 0) {
      built_.timed = false;
      Note(device.kind == "cpu"
               ? fmt::format("{}: not measured; taken as {:.2f} equal CPUs", name, cpus)
               : fmt::format("{}: not measured; GPUs are taken as equal", name));
      return {kAssumedCpu.product_flops * cpus, kAssumedCpu.copy_bytes_per_second * cpus};
    }
    if (speed.copy_bytes_per_second <= 0)
      speed.copy_bytes_per_second = speed.product_flops / kAssumedIntensity;
    Note(fmt::format(
        "{}: layer times estimated at {:.0f} % of {:.4g} GFLOP/s, no layer measured yet", name,
        100 * kEstimatedShare, speed.product_flops / 1e9));
    return speed;
  }

  const ModelShape& shape_;
  const Profile& profile_;
  BuiltProblem& built_;
  std::map<std::tuple<std::string, double, double, double, double>, int> index_;
  double slowest_copy_ = std::numeric_limits<double>::infinity();
};

/// Assumes the requested number of replicas, else the most that the requested stages and tensor
/// ranks leave. A ring waits for its slowest member.
void AddCompression(const PlanRequest& request, double slowest_copy, PlanProblem& problem) {
  const std::int64_t each = request.pipeline.value_or(1) * request.tensor.value_or(1);
  const std::int64_t most = std::clamp<std::int64_t>(
      std::ssize(problem.devices) / each, 1, std::max<std::int64_t>(1, request.global_batch));
  const auto members = static_cast<int>(request.data.value_or(most));
  problem.feedback_copies = request.compression->feedback_copies;
  problem.compress_all = request.compression->always;
  problem.exchange_after = request.compression->local_steps > 0;
  problem.compress_from_start = request.compression->from_start;
  for (ProblemLayer& layer : problem.layers) {
    layer.compressed_bytes = CompressedBytes(*request.compression, members, layer.gradient_bytes);
    layer.compression_s =
        CompressionSeconds(*request.compression, members, layer.gradient_bytes, slowest_copy);
  }
}

void AddDevices(const Cluster& cluster, const ModelShape& shape, const Profile& profile,
                const PlanRequest& request, BuiltProblem& built) {
  const auto index = IndexOf(cluster);
  std::map<std::string, double> failures;
  for (const NodeHistory& node : profile.nodes) failures[node.node] = node.failures;
  Kinds kinds(shape, profile, built);
  for (const Device& device : built.devices) {
    ProblemDevice one;
    one.kind = kinds.Of(device);
    one.node = index.at(device.node);
    one.memory_bytes = static_cast<double>(device.memory_bytes);
    one.standing = 1 / (1 + kFailureWeight * failures[device.node]);
    built.problem.devices.push_back(one);
  }
  if (request.compression) AddCompression(request, kinds.SlowestCopy(), built.problem);
  for (const NodeHistory& node : profile.nodes) {
    if (node.failures >= kFailedLately && index.contains(node.node))
      built.notes.push_back(fmt::format("{}: its time counts {:.2f} times", Describe(node),
                                        1 + kFailureWeight * node.failures));
  }
}

/// Notes nodes that are spares or have no device to train on.
void NoteIdleNodes(const Cluster& cluster, std::vector<std::string>& notes) {
  constexpr std::size_t kMostNamed = 8;
  std::set<std::string> with;
  for (const Device& device : cluster.devices) with.insert(device.node);
  std::vector<std::string> idle;
  for (const Node& node : cluster.nodes)
    if (!with.contains(node.name)) idle.push_back(node.name);
  if (idle.empty()) return;
  const std::size_t all = idle.size();
  idle.resize(std::min(all, kMostNamed));
  notes.push_back(
      fmt::format("kept aside, or without devices: {}{}", fmt::join(idle, ", "),
                  all > kMostNamed ? fmt::format(" and {} more", all - kMostNamed) : ""));
}

void AddLinks(const Cluster& cluster, const Profile& profile, BuiltProblem& built) {
  bool assumed = false;
  const auto index = IndexOf(cluster);
  PlanProblem& problem = built.problem;
  problem.links = NominalLinks(cluster, assumed);
  std::size_t measured = 0;
  for (const LinkMeasurement& link : profile.links) {
    const auto from = index.find(link.from), to = index.find(link.to);
    if (from == index.end() || to == index.end()) continue;
    problem.links.At(from->second, to->second) = {link.latency_s, link.bytes_per_second};
    measured += link.from != link.to ? 1 : 0;
  }
  for (const LinkHistory& lost : profile.lost_links) {
    const auto from = index.find(lost.from), to = index.find(lost.to);
    if (from == index.end() || to == index.end() || lost.failures < kFailedLately) continue;
    const double slower = 1 + kFailureWeight * lost.failures;
    problem.links.At(from->second, to->second).bytes_per_second /= slower;
    problem.links.At(to->second, from->second).bytes_per_second /= slower;
    built.notes.push_back(fmt::format("{}: its time counts {:.2f} times", Describe(lost), slower));
  }
  const std::size_t nodes = cluster.nodes.size(), pairs = nodes * (nodes - 1);
  if (pairs > 0 && measured == pairs)
    built.notes.push_back(fmt::format("links: all {} directions measured", pairs));
  else if (pairs > 0)
    built.notes.push_back(fmt::format("links: {} of {} directions measured, the others {}",
                                      measured, pairs,
                                      assumed ? "assumed to be gigabit Ethernet where no card's "
                                                "speed is known"
                                              : "as cards and switches promise"));
  for (const Node& node : cluster.nodes) problem.node_names.push_back(node.name);
}

/// Bytes of an activation.
double ScalarBytes(const TrainingFormat& format) {
  return format.precision == Precision::kFp32 ? 4 : 2;
}

/// What passes wait for if tensor ranks share a layer (runtime/model): the embedding's output, both
/// branches of a block, the loss's parts of the vocabulary and the gradient of the head's input.
/// Where ranks share rows, each of a branch's sums is cut in a gathering before its products and a
/// scattering behind them, half a sum each. Backward gathers their inputs once more, and norms have
/// gradients to sum. At both ends of the model rows are gathered.
void AddSums(const ModelDims& dims, const TrainingFormat& format, PlanProblem& problem) {
  const auto tokens = static_cast<double>(dims.sequence);
  const double residual = ScalarBytes(format) * tokens * static_cast<double>(dims.hidden);
  const auto of_residual = [&](double count) { return RankSums{{count, 0}, count * residual, 0}; };
  const bool rows = problem.shares_rows;
  const double gathering = rows ? 0.5 : 0;
  problem.layers.front().forward_sums = of_residual(1);
  problem.layers.front().backward_sums.fill(of_residual(gathering));
  for (ProblemLayer& layer : problem.layers) {
    if (!layer.block) continue;
    layer.forward_sums = of_residual(2);
    RankSums backward = of_residual(2 + 2 * gathering);
    if (rows) backward += RankSums{{2, 0}, 0, 0};  // norms': few bytes
    layer.backward_sums.fill(backward);
    // Forward again, up to the output that is kept.
    const double again = Architecture::Of(dims.kind).post_norm ? 2 : 1 + gathering;
    layer.backward_sums[static_cast<std::size_t>(Recompute::kFull)] += of_residual(again);
    // Keys and values are gathered, or their gradients scattered: half of a sum.
    const double head = ScalarBytes(format) * tokens * static_cast<double>(2 * dims.HeadSize());
    layer.head_sums = {{0.5, 0}, head / 2, 0};
    layer.kv_heads = static_cast<int>(dims.KvHeads());
  }
  // A token's maximum and sum from each rank, and its target's logit, for some tokens at a time.
  const auto targets = static_cast<double>(TargetsPerSample(dims));
  RankSums& loss = problem.layers.back().forward_sums;
  loss = of_residual(1 + gathering);
  loss.count.per_sample = targets / static_cast<double>(kHeadTokens);
  loss.bytes += 4 * targets;
  loss.bytes_per_rank = 2 * 4 * targets;
  problem.layers.back().backward_sums.fill(of_residual(gathering));
}

/// Memory that tensor ranks of a node share for their sums, all of which each rank touches, and its
/// own where it adds 16-bit values (runtime/train/tensor_sums.h).
double SumBytes(const TrainingFormat& format, int ranks) {
  constexpr double kPiece = 256 * 1024 * 4;
  if (ranks == 1) return 0;
  return kPiece * (2 * ranks + (format.precision == Precision::kFp32 ? 0 : 2));
}

/// A rank's memory besides layers, for each number of tensor ranks that may be chosen.
void AddRankBytes(const ModelDims& dims, const TrainingFormat& format, std::int64_t threads,
                  PlanProblem& problem) {
  constexpr std::int64_t kTabulated = 64;
  for (const int ranks : problem.choices.tensor) {
    ModelDims part = dims.Part(ranks);
    part.layers = 1;  // none of this depends on their number
    RankBytes& bytes = problem.rank_bytes[ranks];
    for (std::size_t r = 0; r < kRecomputes; ++r) {
      TrainingFormat variant = format;
      variant.recompute = static_cast<Recompute>(r);
      variant.row_ranks = problem.shares_rows ? ranks : 1;
      bytes.workspace[r] =
          static_cast<double>(ModelShape::Of(part, variant).workspace_bytes_per_sample);
    }
    const ModelShape shape = ModelShape::Of(part, format);
    for (std::int64_t b = 1; b <= std::min(kTabulated, problem.global_batch + 1); ++b) {
      // The head's chunks make it fall in places, but the planner needs it to grow.
      const double before = bytes.scratch.empty() ? 0 : bytes.scratch.back();
      bytes.scratch.push_back(std::max(
          before, SumBytes(format, ranks) + static_cast<double>(shape.ProcessBytes(b, threads))));
    }
  }
}

void AddLayers(const ModelDims& dims, const TrainingFormat& format, std::int64_t threads,
               PlanProblem& problem) {
  const ModelShape shape = ModelShape::Of(dims, format);
  const double scalar = ScalarBytes(format);
  for (std::size_t i = 0; i < shape.layers.size(); ++i) {
    const LayerShape& layer = shape.layers[i];
    ProblemLayer one;
    one.parameter_bytes = static_cast<double>(layer.parameter_bytes);
    one.gradient_bytes = static_cast<double>(layer.gradient_bytes);
    one.optimizer_bytes = static_cast<double>(layer.optimizer_bytes);
    one.whole_parameters = static_cast<double>(layer.whole_parameters) /
                           static_cast<double>(std::max<std::int64_t>(1, layer.parameters));
    one.whole_work = layer.whole_work;
    one.block = i > 0 && i + 1 < shape.layers.size();
    if (i + 1 < shape.layers.size())
      one.boundary_bytes = scalar * static_cast<double>(dims.sequence * dims.hidden);
    problem.layers.push_back(one);
  }
  for (std::size_t r = 0; r < kRecomputes; ++r) {
    TrainingFormat variant = format;
    variant.recompute = static_cast<Recompute>(r);
    const ModelShape with = ModelShape::Of(dims, variant);
    for (std::size_t i = 0; i < with.layers.size(); ++i) {
      const LayerShape& layer = with.layers[i];
      ProblemLayer& one = problem.layers[i];
      one.activation_bytes[r] = static_cast<double>(layer.activation_bytes_per_sample);
      one.whole_activation_bytes[r] =
          static_cast<double>(layer.whole_activation_bytes_per_sample -
                              (problem.shares_rows ? layer.row_bytes_per_sample : 0));
      one.kv_head_bytes[r] = static_cast<double>(layer.kv_head_bytes_per_sample);
    }
  }
  problem.tied = dims.tie_embeddings;
  if (problem.tied) problem.tied_bytes = 4.0 * static_cast<double>(dims.vocab * dims.hidden);
  AddSums(dims, format, problem);
  AddRankBytes(dims, format, threads, problem);
  // The snapshot is float32; parameters may have 16 bits.
  problem.snapshot_share = 12.0 * static_cast<double>(shape.total.parameters) /
                           static_cast<double>(shape.total.parameter_bytes);
}

/// The numbers of tensor ranks next to this one that can share a block, in words.
std::string NearestSplits(const ModelDims& dims, std::int64_t tensor) {
  std::int64_t below = std::min(tensor, dims.heads), above = tensor;
  while (!dims.CanBeSharedBy(below)) --below;
  while (above <= dims.heads && !dims.CanBeSharedBy(above)) ++above;
  return above > dims.heads ? fmt::format("{} can", below)
                            : fmt::format("{} or {} can", below, above);
}

/// Whether the bits are those of one rank, where that is asked for. Ranks that share a head of keys
/// add its gradients in another order.
bool KeepsBits(const ModelDims& dims, const PlanRequest& request, std::int64_t tensor) {
  return !request.reproducible || (kTensorGroups % tensor == 0 && tensor <= dims.KvHeads());
}

std::vector<int> One(const std::optional<std::int64_t>& wanted, std::vector<int> otherwise) {
  return wanted ? std::vector<int>{static_cast<int>(*wanted)} : std::move(otherwise);
}

void AddChoices(const Cluster& cluster, const ModelDims& dims, const PlanRequest& request,
                Choices& choices) {
  std::map<std::string, int> on_node;
  int widest = 1;
  for (const Device& device : cluster.devices) widest = std::max(widest, ++on_node[device.node]);
  std::vector<int> tensor{1};
  // The runtime cannot send tensor ranks' gradients as sketches (NotRunnable).
  const bool no_tensor =
      request.runnable_only && request.compression && request.compression->sketch;
  for (int t = 2; t <= widest && !no_tensor; ++t) {
    if (dims.CanBeSharedBy(t) && KeepsBits(dims, request, t)) tensor.push_back(t);
  }
  const std::vector<int> zero{0};
  choices.data = One(request.data, {});
  choices.tensor = One(request.tensor, tensor);
  choices.pipeline = One(request.pipeline, {});
  choices.cut = request.cut;
  // Each chunk of a stage needs a layer.
  const int chunks = request.schedule.Chunks();
  for (int stages = 1; chunks > 1 && !request.pipeline; ++stages) {
    if (stages > 1 && stages * chunks > static_cast<int>(dims.layers + 2)) break;
    choices.pipeline.push_back(stages);
  }
  choices.shard = One(request.shard, request.runnable_only ? zero : std::vector<int>{0, 1, 2});
  // Who asks for more is refused by name (CheckRunnable).
  const auto asked = static_cast<std::size_t>(
      request.data.value_or(1) * request.pipeline.value_or(1) * request.tensor.value_or(1));
  if (request.runnable_only && asked <= kMostRanks) choices.most_ranks = kMostRanks;
  if (request.micro_batch) choices.micro_batch = {*request.micro_batch};
  choices.recompute =
      request.recompute
          ? std::vector<Recompute>{*request.recompute}
          : std::vector<Recompute>{Recompute::kNone, Recompute::kSelective, Recompute::kFull};
}

/// The limit's origin with a * for the node's name: slurmds that may share a host call their groups
/// "/slurm_n1".
std::string CauseOnAnyNode(const MemoryLimit& limit, const std::string& node) {
  const std::size_t place = node.empty() ? std::string::npos : limit.by.find(node);
  return place == std::string::npos ? limit.by
                                    : std::string(limit.by).replace(place, node.size(), "*");
}

}  // namespace

std::vector<Device> DevicesOf(const std::vector<Node>& nodes, const std::vector<int>& cpus,
                              std::optional<std::int64_t> threads) {
  std::vector<Device> devices;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const Node& node = nodes[i];
    Device device;
    device.node = node.name;
    device.kind = "cpu";
    device.model = node.processors.model;
    device.memory_bytes = UsableMemory(node.memory).bytes;
    device.threads = std::max(1, node.processors.allowed_threads);
    if (i < cpus.size() && cpus[i] > 0) device.threads = std::min(device.threads, cpus[i]);
    const double quota = node.processors.quota_cpus.value_or(device.threads);
    device.cpus = std::max(1e-3, std::min<double>(device.threads, quota));
    device.threads = ThreadsOf(device, threads);
    devices.push_back(device);
  }
  return devices;
}

std::vector<Device> GpusOf(const std::vector<Node>& nodes, const std::vector<Device>& hosts) {
  std::vector<Device> devices;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    for (const Gpu& gpu : nodes[i].gpus) {
      Device& device = devices.emplace_back();
      device.node = nodes[i].name;
      device.kind = "cuda";
      device.index = gpu.index;
      device.model = gpu.model;
      device.memory_bytes = gpu.memory_bytes;
      device.threads = std::max(1, hosts[i].threads / static_cast<int>(nodes[i].gpus.size()));
      device.uuid = gpu.uuid;
    }
  }
  return devices;
}

std::vector<std::string> MemoryNotes(const Cluster& cluster) {
  constexpr std::size_t kMostLines = 4;
  struct Nodes {
    std::size_t count = 0;
    const Node* least = nullptr;
  };
  std::map<std::string, Nodes> by_cause;
  for (const Node& node : cluster.nodes) {
    const MemoryLimit usable = UsableMemory(node.memory);
    if (usable.by.empty()) continue;
    Nodes& nodes = by_cause[CauseOnAnyNode(usable, node.name)];
    ++nodes.count;
    if (nodes.least == nullptr || usable.bytes < UsableMemory(nodes.least->memory).bytes)
      nodes.least = &node;
  }
  std::vector<std::string> notes;
  for (const auto& [cause, nodes] : by_cause) {
    if (notes.size() == kMostLines) break;
    notes.push_back(
        fmt::format("memory of {}: {}{}", nodes.least->name, DescribeMemory(nodes.least->memory),
                    nodes.count > 1 ? fmt::format(", as on {} more", nodes.count - 1) : ""));
  }
  return notes;
}

std::set<std::string> KindsOf(const Cluster& cluster, const PlanRequest& request) {
  std::vector<std::string> notes;
  std::set<std::string> kinds;
  // Whole devices are measured, even if ranks will share them.
  for (const Device& device : cluster.devices) kinds.insert(DeviceKindName(device));
  for (const Device& device : RankDevices(cluster, request, {}, notes))
    kinds.insert(DeviceKindName(device));
  return kinds;
}

Result<BuiltProblem> BuildProblem(const Cluster& cluster, const ModelDims& dims,
                                  const TrainingFormat& format, const Profile& profile,
                                  const PlanRequest& request) {
  if (cluster.devices.empty()) return NoPlan("the nodes have no device");
  if (request.data && *request.data > request.global_batch)
    return NoPlan(
        fmt::format("parallel.data = {} needs train.global_batch of at least that, not {}",
                    *request.data, request.global_batch));
  if (request.tensor && !dims.CanBeSharedBy(*request.tensor))
    return NoPlan(
        fmt::format("parallel.tensor = {} ranks cannot share heads, kv_heads and ffn of the "
                    "model ({}, {}, {}): {}",
                    *request.tensor, dims.heads, dims.KvHeads(), dims.Ffn(),
                    NearestSplits(dims, *request.tensor)));
  if (request.tensor && !KeepsBits(dims, request, *request.tensor))
    return NoPlan(
        fmt::format("parallel.tensor = {} with train.reproducible = \"layout\": 1, 2, 4 and 8 "
                    "tensor ranks have the same bits, up to one for each of {} kv_heads",
                    *request.tensor, dims.KvHeads()));
  BuiltProblem built;
  built.problem.global_batch = request.global_batch;
  built.problem.whole_micro_batches = request.reproducible;
  built.problem.shares_rows = !request.reproducible;
  built.devices = RankDevices(cluster, request, profile, built.notes);
  int threads = 1;
  for (const Device& device : built.devices) threads = std::max(threads, device.threads);
  AddChoices(cluster, dims, request, built.problem.choices);
  AddLayers(dims, format, threads, built.problem);
  AddDevices(cluster, ModelShape::Of(dims, format), profile, request, built);
  if (cluster.devices.front().kind == "cpu")
    for (std::string& note : MemoryNotes(cluster)) built.notes.push_back(std::move(note));
  NoteIdleNodes(cluster, built.notes);
  AddLinks(cluster, profile, built);
  return built;
}

}  // namespace adaptive_train
