#include "launcher/doctor/slurm_checks.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <map>

#include "core/file_io.h"
#include "launcher/doctor/munge_checks.h"
#include "launcher/doctor/plugin_file.h"
#include "launcher/steps/slurm_step.h"

namespace adaptive_train {
namespace {

constexpr const char* kPluginSubject = "plugin";

Finding PluginTrouble(const std::string& what, const std::string& why, const std::string& mend) {
  return {kPluginSubject, Severity::kTrouble, what, why, mend};
}

Finding CheckMpi(const std::string& mpi) {
  const auto there = CheckPmixPlugin(mpi);
  if (there) return {"srun's PMIx", Severity::kGood, "srun has " + mpi, "", ""};
  return {
      "srun's PMIx", Severity::kTrouble, there.error().message,
      "runs in Slurm jobs end before they start, with exit code 4",
      "build or install Slurm with PMIx (slurm-wlm-pmi2-pmix, slurm-pmix), or name another of the "
      "list by launch.mpi"};
}

/// A setting; empty where Slurm has none.
std::string Value(const std::map<std::string, std::string>& settings, const std::string& key) {
  const auto found = settings.find(key);
  return found == settings.end() || found->second == "(null)" ? "" : found->second;
}

/// plugstack.conf lies beside slurm.conf unless it is set.
std::string PlugstackOf(const std::map<std::string, std::string>& settings) {
  const std::string set = Value(settings, "PlugStackConfig");
  const std::filesystem::path conf = Value(settings, "SLURM_CONF");
  return set.empty() ? (conf.parent_path() / "plugstack.conf").string() : set;
}

/// munge is Slurm's default.
bool UsesMunge(const std::string& auth_type) {
  return auth_type.empty() || auth_type == "auth/munge";
}

}  // namespace

Finding CheckPlugin(const std::string& plugstack, const std::string& plugin_dir,
                    const std::string& slurm_version) {
  const auto line = FindPluginLine(plugstack);
  if (!line || !*line)
    return {kPluginSubject, Severity::kNote,
            line ? plugstack + " does not load it" : line.error().message,
            "without it sbatch does not know --adaptive-train, and runs look at their nodes as the "
            "user",
            "remove the # in front of `optional` in plugstack.conf.d/adaptive_train.conf, include "
            "that folder in plugstack.conf, and restart slurmd"};
  const std::string& name = (*line)->path;
  const std::string path = (std::filesystem::path(plugin_dir) / name).string();
  const std::string& where = (*line)->where;
  if ((*line)->required)
    return PluginTrouble(where + " loads it as `required`",
                         "where it is missing or of another release, every sbatch and srun fails",
                         "write `optional` there");
  const auto built_for = PluginVersionOf(path);
  if (!built_for)
    return PluginTrouble(fmt::format("{}: {}", where, built_for.error().message),
                         "Slurm goes on without the option --adaptive-train",
                         "install the package adaptive-train-slurm, or correct the path");
  const auto slurm = SlurmVersionOf(slurm_version);
  if (slurm && *slurm >> 8 != *built_for >> 8)
    return PluginTrouble(fmt::format("{} was built for Slurm {}, and this is {}", path,
                                     ReleaseOf(*built_for), Printable(slurm_version, 40)),
                         "Slurm refuses plugins of another release and goes on without the option",
                         "install adaptive-train-slurm of this release, with Slurm's own upgrade");
  return {kPluginSubject, Severity::kGood,
          fmt::format("{} for Slurm {}, by {}", path, ReleaseOf(*built_for), where), "", ""};
}

Finding CheckUnkillableTimeout(const std::string& seconds) {
  constexpr int kEnough = 120;  // twice Slurm's default
  const std::string subject = "UnkillableStepTimeout";
  const int value = std::atoi(seconds.c_str());
  if (value >= kEnough) return {subject, Severity::kGood, fmt::format("{} s", value), "", ""};
  return {subject, Severity::kNote,
          seconds.empty() ? "Slurm does not say it" : fmt::format("only {} s", value),
          "a node whose step ends slowly is drained: \"Kill task failed\". That is likelier after "
          "another node of the step was lost",
          fmt::format("UnkillableStepTimeout={} in slurm.conf", kEnough)};
}

Finding CheckPrologFlags(const std::string& flags) {
  const std::string subject = "PrologFlags";
  // Slurm adds it itself where Contain or X11 needs it.
  if (("," + flags + ",").find(",Alloc,") != std::string::npos)
    return {subject, Severity::kGood, Printable(flags, 80), "", ""};
  return {subject, Severity::kNote, "nodes run it with their first step",
          "the probe delays that step", "PrologFlags=Alloc in slurm.conf"};
}

std::vector<Finding> CheckSlurm(const std::string& mpi) {
  const auto version = SlurmVersion();
  if (!version)
    return {{"Slurm", Severity::kTrouble, version.error().message, "no job can be submitted here",
             "a slurm.conf, or SLURM_CONF, for this host"}};
  if (!*version)
    return {{"Slurm", Severity::kNote, "there is no srun here", "runs use this machine alone",
             "call doctor where Slurm's commands are"}};
  std::vector<Finding> findings = {CheckMpi(mpi)};
  const auto settings = SlurmSettings();
  if (settings) {
    findings.push_back({"Slurm", Severity::kGood, **version + ", slurmctld answers", "", ""});
    findings.push_back(
        CheckPlugin(PlugstackOf(*settings), Value(*settings, "PluginDir"), **version));
    findings.push_back(CheckPrologFlags(Value(*settings, "PrologFlags")));
    findings.push_back(CheckUnkillableTimeout(Value(*settings, "UnkillableStepTimeout")));
    if (!UsesMunge(Value(*settings, "AuthType"))) return findings;
  } else {
    findings.push_back(
        {"Slurm", Severity::kTrouble, settings.error().message,
         "jobs cannot be submitted, and runs learn nothing of their job",
         "systemctl status slurmctld on the controller's host; SlurmctldHost and its "
         "port in slurm.conf"});
  }
  findings.push_back(CheckMungeAnswers());
  findings.push_back(CheckMungeVersion(FindMungePackage()));
  return findings;
}

}  // namespace adaptive_train
