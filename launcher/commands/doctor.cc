#include "launcher/commands/doctor.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/timex.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/file_io.h"
#include "core/format_version.h"
#include "core/settings.h"
#include "db/store_location.h"
#include "launcher/commands/outcome.h"
#include "launcher/commands/overrides.h"
#include "launcher/doctor/host_checks.h"
#include "launcher/doctor/job_checks.h"
#include "launcher/doctor/network_checks.h"
#include "launcher/doctor/place_checks.h"
#include "launcher/doctor/slurm_checks.h"
#include "launcher/steps/stop_signals.h"

namespace adaptive_train {
namespace {

constexpr const char* kDoctorFooter =
    R"(Looks at this host and this user: what a run needs of Slurm, munge, limits, network, run folder and
store. Each finding says what is there, why it matters, and what mends it. Then all settings follow,
each with where it comes from; with CONFIG as they are in a run with it.

In a job of several nodes each of them looks for the run folder and connects to this host and to the
others. It also says which NVIDIA driver and NCCL it has, and its time. With srun before it doctor looks at every node.

Examples:
  adaptive-train doctor
  adaptive-train doctor config.toml --recovery.attempts=5
  srun -N4 --ntasks-per-node=1 adaptive-train doctor
  adaptive-train doctor --json | jq '.findings[] | select(.severity == "trouble")'

Exit codes: 0 no trouble (there may be notes), 2 usage, 4 trouble.)";

struct DoctorArguments {
  std::string run_dir = "runs";
  std::string store;  // as typed
  std::string config;
  std::vector<std::string> extras;
  bool json = false;
};

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

rlim_t HardLimit(__rlimit_resource_t resource) {
  rlimit limit{};
  ::getrlimit(resource, &limit);
  return limit.rlim_max;
}

Finding CheckThisClock() {
  timex clock{};
  const int state = ::adjtimex(&clock);
  return CheckClock(state, clock);
}

/// Of the settings' files; these are also what the other checks go by.
Finding CheckSettings(const Result<Settings>& settings) {
  if (!settings)
    return {"settings", Severity::kTrouble, settings.error().message,
            "run, plan, jobs, links and nodes end with exit code 2",
            "correct the line, or the file's owner and mode"};
  return {"settings", Severity::kGood,
          fmt::format("{} keys set in {} and {}", settings->sources.size(), SiteSettingsPath(),
                      UserSettingsPath()),
          "", ""};
}

/// What needs the job's nodes.
std::vector<Finding> CheckJob(const std::string& run_dir, const LaunchConfig& launch) {
  const auto allocation = FindAllocation();
  if (!allocation)
    return {{"job", Severity::kTrouble, allocation.error().message,
             "a run in this job ends before it starts, with exit code 4", "as the line says"}};
  std::vector<Finding> findings = {CheckRunFolder(run_dir, *allocation)};
  if (!allocation->in_slurm || allocation->hosts.size() < 2) return findings;
  findings.push_back(CheckPorts(launch, *allocation));
  findings.push_back(CheckGpuVersions(launch, *allocation));
  findings.push_back(CheckClocks(launch, *allocation));
  return findings;
}

std::vector<Finding> CheckAll(const DoctorArguments& arguments, const Result<Settings>& settings,
                              const StoreChoice& store) {
  const Settings in_use = settings.value_or(Settings{});
  std::vector<Finding> findings = {CheckSettings(settings)};
  for (Finding& finding : CheckSlurm(in_use.defaults.launch.mpi))
    findings.push_back(std::move(finding));
  for (Finding& finding : CheckJob(arguments.run_dir, in_use.defaults.launch))
    findings.push_back(std::move(finding));
  findings.push_back(CheckStore(store));
  findings.push_back(CheckOpenFiles(HardLimit(RLIMIT_NOFILE)));
  findings.push_back(CheckLockedMemory(HardLimit(RLIMIT_MEMLOCK), HasRdma()));
  findings.push_back(CheckMemoryGroup());
  findings.push_back(CheckCpuGroup());
  findings.push_back(CheckInterface(in_use.defaults.launch));
  findings.push_back(CheckUcxDevices(Variable("UCX_NET_DEVICES")));
  findings.push_back(CheckUcxTransports(Variable("UCX_TLS")));
  findings.push_back(CheckThisClock());
  return findings;
}

/// With the store that counts: the command line and the environment come before the files.
std::vector<ShownSetting> SettingsInUse(const Settings& settings, const StoreChoice& store) {
  auto shown = ListSettings(settings);
  if (!store.text.empty())
    shown.front() = {"store", '"' + Printable(store.text) + '"', store.named_by};
  return shown;
}

std::string NameOfSeverity(Severity severity) {
  switch (severity) {
    case Severity::kGood:
      return "good";
    case Severity::kNote:
      return "note";
    case Severity::kTrouble:
      return "trouble";
  }
  return "";
}

std::string AsText(const std::vector<Finding>& findings,
                   const std::vector<ShownSetting>& settings) {
  std::string text;
  for (const Finding& finding : findings) {
    text += fmt::format("{:<8} {}: {}\n", NameOfSeverity(finding.severity), finding.subject,
                        finding.what);
    if (!finding.why.empty()) text += fmt::format("         why:  {}\n", finding.why);
    if (!finding.mend.empty()) text += fmt::format("         mend: {}\n", finding.mend);
  }
  text += "\nsettings\n";
  for (const ShownSetting& shown : settings)
    text += fmt::format("  {:<28} {:<12} {}\n", shown.key, shown.value, shown.source);
  return text;
}

std::string AsJson(const std::vector<Finding>& findings,
                   const std::vector<ShownSetting>& settings) {
  using Json = nlohmann::ordered_json;
  Json root = {
      {"format_version", kFormatVersion}, {"findings", Json::array()}, {"settings", Json::array()}};
  for (const Finding& finding : findings)
    root["findings"].push_back({{"subject", finding.subject},
                                {"severity", NameOfSeverity(finding.severity)},
                                {"what", finding.what},
                                {"why", finding.why},
                                {"mend", finding.mend}});
  for (const ShownSetting& shown : settings)
    root["settings"].push_back(
        {{"key", shown.key}, {"value", shown.value}, {"source", shown.source}});
  return root.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

int RunDoctorCommand(const DoctorArguments& arguments) {
  HeldSignals held;
  auto settings = LoadSettings();
  if (settings && !arguments.config.empty()) {
    const auto overrides = ParseOverrides(arguments.extras);
    if (!overrides) return ReportError("doctor", overrides.error());
    auto in_run = InRun(*settings, arguments.config, *overrides);
    if (!in_run) return ReportError("doctor", in_run.error());
    settings = std::move(*in_run);
  }
  const StoreChoice store = ChooseStore(arguments.store, settings.value_or(Settings{}));
  const std::vector<Finding> findings = CheckAll(arguments, settings, store);
  const auto shown = SettingsInUse(settings.value_or(Settings{}), store);
  const int printed =
      PrintText("doctor", arguments.json ? AsJson(findings, shown) : AsText(findings, shown));
  if (printed != 0) return printed;
  const bool trouble = std::ranges::any_of(
      findings, [](const Finding& finding) { return finding.severity == Severity::kTrouble; });
  return ToInt(trouble ? ExitCode::kPreflight : ExitCode::kDone);
}

}  // namespace

void AddDoctorCommand(CLI::App& app, std::function<int()>& chosen) {
  auto arguments = std::make_shared<DoctorArguments>();
  CLI::App* doctor = app.add_subcommand(
      "doctor", "What is wrong here, why it matters, and what mends it; all settings");
  doctor->footer(kDoctorFooter);
  doctor->allow_extras();
  doctor
      ->add_option("config", arguments->config,
                   "Shows settings as they are in a run with this configuration, and with "
                   "--section.key=value")
      ->type_name("CONFIG");
  doctor
      ->add_option("--run-dir", arguments->run_dir,
                   "Where run folders are to be (default: runs, in the working directory)")
      ->type_name("DIR");
  doctor->add_option("--store", arguments->store, "The profile store, as for `run`")
      ->type_name("file:PATH|unix:PATH|tcp:HOST:PORT");
  doctor->add_flag("--json", arguments->json, "One JSON document instead of lines for people");
  doctor->callback([doctor, arguments, &chosen] {
    arguments->extras = doctor->remaining();
    if (arguments->config.empty() && !arguments->extras.empty()) throw CLI::RequiredError("config");
    chosen = [arguments] { return RunDoctorCommand(*arguments); };
  });
}

}  // namespace adaptive_train
