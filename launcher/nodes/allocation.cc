#include "launcher/nodes/allocation.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>

#include "core/file_io.h"
#include "core/seconds.h"
#include "db/launcher_process.h"
#include "launcher/steps/slurm_step.h"

namespace adaptive_train {
namespace {

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

/// A decimal number that is the whole text.
std::optional<std::int64_t> Number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

Allocation ThisMachine() {
  Allocation here;
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  here.cluster = host;
  here.submit_time = EpochSecondsNow();
  here.job_name = "run";
  here.user = CallingUser();
  here.hosts = {host};
  here.cpus = {0};
  return here;
}

Result<std::optional<JobOptions>> OptionsOfJob() {
  const char* text = std::getenv(kJobOptionsVariable);
  if (text == nullptr) return std::nullopt;
  auto options = ParseJobOptions(text);
  if (!options) return FailIn(kJobOptionsVariable, options.error());
  return *options;
}

}  // namespace

std::string Allocation::ShownId() const {
  return array_job_id && array_task_id ? fmt::format("{}_{}", *array_job_id, *array_task_id)
                                       : std::to_string(job_id);
}

std::string Allocation::OwnNode() const {
  return in_slurm ? Variable("SLURMD_NODENAME") : hosts.front();
}

Result<std::vector<int>> ParseCpusPerNode(const std::string& text) {
  constexpr std::int64_t kMost = 65536;
  const auto bad =
      Fail("SLURM_JOB_CPUS_PER_NODE=\"" + Printable(text, 60) + "\" is not like 8(x2),4",
           ExitCode::kPreflight);
  std::vector<int> cpus;
  for (std::size_t begin = 0; begin <= text.size();) {
    const auto comma = std::min(text.find(',', begin), text.size());
    const std::string item = text.substr(begin, comma - begin);
    const auto open = item.find("(x");
    auto count = Number(item.substr(0, open));
    std::optional<std::int64_t> times = 1;
    if (open != std::string::npos) {
      if (item.back() != ')') return bad;
      times = Number(item.substr(open + 2, item.size() - open - 3));
    }
    if (!count || !times || *count < 1 || *count > kMost || *times < 1) return bad;
    if (static_cast<std::int64_t>(cpus.size()) + *times > kMost) return bad;
    cpus.insert(cpus.end(), static_cast<std::size_t>(*times), static_cast<int>(*count));
    begin = comma + 1;
  }
  return cpus;
}

Result<Allocation> FindAllocation() {
  auto options = OptionsOfJob();
  if (!options) return tl::unexpected(options.error());
  Allocation allocation = ThisMachine();
  allocation.options = *options;
  const std::string id = Variable("SLURM_JOB_ID");
  if (id.empty()) return allocation;
  allocation.in_slurm = true;
  const auto job = Number(id);
  if (!job || *job < 1)
    return Fail("SLURM_JOB_ID=\"" + Printable(id, 40) + "\" is not a job id", ExitCode::kPreflight);
  if (Number(Variable("SLURM_HET_SIZE")).value_or(1) > 1)
    return Fail(
        fmt::format("job {} is a heterogeneous job of {} components, and ranks would run in the "
                    "first one only: submit one component; its nodes may be uneven",
                    id, Variable("SLURM_HET_SIZE")),
        ExitCode::kPreflight);
  allocation.job_id = *job;
  const auto array = Number(Variable("SLURM_ARRAY_JOB_ID"));
  const auto task = Number(Variable("SLURM_ARRAY_TASK_ID"));
  if (array && task) allocation.array_job_id = array, allocation.array_task_id = task;
  allocation.restart_count = Number(Variable("SLURM_RESTART_COUNT")).value_or(0);
  if (auto name = Variable("SLURM_CLUSTER_NAME"); !name.empty())
    allocation.cluster = Printable(name, 100);
  allocation.account = Printable(Variable("SLURM_JOB_ACCOUNT"), 100);
  if (auto name = Variable("SLURM_JOB_NAME"); !name.empty())
    allocation.job_name = Printable(name, 200);
  auto hosts = ExpandHosts(Variable("SLURM_JOB_NODELIST"));
  if (!hosts) return tl::unexpected(hosts.error());
  allocation.hosts = std::move(*hosts);
  auto cpus = ParseCpusPerNode(Variable("SLURM_JOB_CPUS_PER_NODE"));
  if (!cpus) return tl::unexpected(cpus.error());
  allocation.cpus = std::move(*cpus);
  if (allocation.cpus.size() != allocation.hosts.size()) {
    return Fail(fmt::format("Slurm names {} hosts but gives CPU counts for {}",
                            allocation.hosts.size(), allocation.cpus.size()),
                ExitCode::kPreflight);
  }
  auto memory = FindJobMemory();
  if (!memory) return tl::unexpected(memory.error());
  allocation.memory = *memory;
  auto submitted = SubmitTime(allocation.job_id);
  if (!submitted) return tl::unexpected(submitted.error());
  allocation.submit_time = *submitted;
  return allocation;
}

}  // namespace adaptive_train
