#include "launcher/doctor/munge_checks.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <chrono>
#include <string_view>

#include "core/file_io.h"
#include "launcher/steps/child_process.h"

namespace adaptive_train {
namespace {

constexpr std::chrono::seconds kDeadline{5};
constexpr std::string_view kHole = "CVE-2026-25506";
constexpr std::array<int, 3> kMended = {0, 5, 18};
constexpr const char* kDebianChangelog = "/usr/share/doc/munge/changelog.Debian.gz";

/// What the command printed; none: it is not there or failed.
std::optional<std::string> OutputOf(std::vector<std::string> command) {
  constexpr std::size_t kMostOutput = 4 << 20;
  auto done = RunCommand({std::move(command), std::nullopt, ""}, kDeadline, kMostOutput);
  if (!done || !done->Ok() || done->output.empty()) return std::nullopt;
  return done->output;
}

/// The numbers at the beginning of "0.5.15-2+deb12u1", without an epoch; none: there are not three.
std::optional<std::array<int, 3>> UpstreamVersion(std::string_view text) {
  if (const auto colon = text.find(':'); colon != text.npos) text.remove_prefix(colon + 1);
  std::array<int, 3> numbers{};
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), numbers[i]);
    if (error != std::errc()) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    if (i + 1 == numbers.size()) break;
    if (text.empty() || text.front() != '.') return std::nullopt;
    text.remove_prefix(1);
  }
  return numbers;
}

}  // namespace

Finding CheckMungeAnswers() {
  auto done = RunCommand({{"munge", "--no-input"}, std::nullopt, ""}, kDeadline);
  if (done && done->Ok()) return {"munge", Severity::kGood, "munged answers", "", ""};
  const std::string why = done ? Printable(done->errors) : done.error().message;
  return {"munge", Severity::kTrouble, "munged does not answer: " + why,
          "Slurm's commands and the wire-up of ranks fail without it",
          "systemctl enable --now munge, with the same /etc/munge/munge.key on all hosts"};
}

MungePackage FindMungePackage() {
  if (auto version = OutputOf({"dpkg-query", "-W", "-f", "${Version}", "munge"}))
    return {*version, OutputOf({"gzip", "-dc", kDebianChangelog})};
  if (auto version = OutputOf({"rpm", "-q", "--qf", "%{VERSION}-%{RELEASE}", "munge"}))
    return {*version, OutputOf({"rpm", "-q", "--changelog", "munge"})};
  return {};
}

Finding CheckMungeVersion(const MungePackage& package) {
  const char* subject = "munge's version";
  const std::string shown = Printable(package.version, 60);
  const std::string why =
      "it lets a local user read munge's key, and with it act as anybody in the cluster";
  const auto version = UpstreamVersion(package.version);
  const std::string hole(kHole);
  if (!version)
    return {subject, Severity::kNote, "not known: no package of the distribution has munge",
            "before 0.5.18 " + hole + ", unless patched: " + why, "munged --version"};
  if (*version >= kMended) return {subject, Severity::kGood, shown, "", ""};
  if (!package.changelog)
    return {subject, Severity::kNote,
            shown + ", and its changelog, which would name a patch, is not to be read",
            "before 0.5.18 " + hole + ", unless patched: " + why,
            "look for " + hole + " in the distribution's advisories"};
  if (package.changelog->find(kHole) != std::string::npos)
    return {subject, Severity::kGood, shown + ", patched against " + hole, "", ""};
  return {subject, Severity::kTrouble, shown + " has " + hole, why,
          "upgrade the package munge on all hosts (apt-get install munge, dnf upgrade munge), then "
          "systemctl restart munge, and make a new key"};
}

}  // namespace adaptive_train
