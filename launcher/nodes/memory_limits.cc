#include "launcher/nodes/memory_limits.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "core/control_groups.h"
#include "core/file_io.h"

namespace adaptive_train {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
/// More than any node has: kernels and Slurm write larger numbers for "no limit".
constexpr std::int64_t kNoLimit = std::int64_t{1} << 50;

/// The bytes of a unit; 0 if unknown. Slurm counts in MiB without a unit.
std::int64_t UnitOf(std::string_view unit) {
  if (unit.empty() || unit == "M") return kMiB;
  if (unit == "K") return kMiB >> 10;
  if (unit == "G") return kMiB << 10;
  if (unit == "T") return kMiB << 20;
  return 0;
}

Result<std::int64_t> MemoryOf(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return 0;
  return ParseMemory(variable, text);
}

/// The limit of one group in bytes; 0: no limit.
std::int64_t LimitIn(const ControlGroup& group) {
  const std::string file = group.folder + (group.is_v2 ? "/memory.max" : "/memory.limit_in_bytes");
  const std::string text = ReadFile(file, 4096).value_or("");  // "max", or no file at the top
  std::int64_t bytes = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  return error == std::errc() && bytes > 0 && bytes < kNoLimit ? bytes : 0;
}

}  // namespace

Result<std::int64_t> ParseMemory(const std::string& variable, const std::string& text) {
  std::int64_t count = 0;
  const char* last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, count);
  const std::int64_t unit = UnitOf({end, static_cast<std::size_t>(last - end)});
  if (error == std::errc::invalid_argument || unit == 0 || text[0] == '-')
    return Fail(variable + "=\"" + Printable(text, 60) + "\" is not a size like 4096, 4096M or 4G",
                ExitCode::kPreflight);
  return error != std::errc() || count >= kNoLimit / unit ? 0 : count * unit;
}

Result<JobMemory> FindJobMemory() {
  const auto per_node = MemoryOf("SLURM_MEM_PER_NODE");
  if (!per_node) return tl::unexpected(per_node.error());
  const auto per_cpu = MemoryOf("SLURM_MEM_PER_CPU");
  if (!per_cpu) return tl::unexpected(per_cpu.error());
  const auto per_gpu = MemoryOf("SLURM_MEM_PER_GPU");
  if (!per_gpu) return tl::unexpected(per_gpu.error());
  return JobMemory{*per_node, *per_cpu, *per_gpu};
}

std::optional<MemoryLimit> LimitOf(const JobMemory& memory, int cpus, int gpus) {
  std::optional<MemoryLimit> least;
  const auto reduce = [&least](std::int64_t each, int count, const char* by) {
    const std::int64_t bytes = each < kNoLimit / std::max(1, count) ? each * count : 0;
    if (bytes > 0 && (!least || bytes < least->bytes)) least = {bytes, by};
  };
  reduce(memory.per_node, 1, "the job's --mem");
  reduce(memory.per_cpu, cpus, "the job's --mem-per-cpu");
  reduce(memory.per_gpu, gpus, "the job's --mem-per-gpu");
  return least;
}

std::optional<MemoryLimit> ControlGroupLimit(const std::string& root) {
  std::optional<MemoryLimit> least;
  for (const ControlGroup& group : ControlGroupsOf("memory", root)) {
    const std::int64_t bytes = LimitIn(group);
    if (bytes > 0 && (!least || bytes < least->bytes))
      least = {bytes, "control group " + Printable(group.name, 120)};
  }
  return least;
}

}  // namespace adaptive_train
