#include "core/failure_kind.h"

#include <signal.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace adaptive_train {
namespace {

constexpr std::array<std::string_view, 16> kFailureKinds = {
    "unknown",       "node_silent", "rank_silent", "link_lost", "device_error", "out_of_memory",
    "killed",        "crashed",     "diverged",    "disk_full", "quota",        "storage",
    "configuration", "launch",      "slow",        "injected"};
constexpr std::array<std::string_view, 3> kBlamed = {"", "node", "link"};

/// Errors of a path that somebody wrote wrong, and not of the file system.
constexpr std::array kPathErrors = {ENOENT, EACCES, EPERM, ENOTDIR,
                                    EISDIR, EROFS,  ELOOP, ENAMETOOLONG};
/// Signals that a process brings upon itself.
constexpr std::array kOwnSignals = {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};

template <class Items, class Item>
bool IsAmong(const Items& items, const Item& item) {
  return std::find(items.begin(), items.end(), item) != items.end();
}

}  // namespace

template <>
std::span<const std::string_view> NamesOf<FailureKind>() {
  return kFailureKinds;
}
template <>
std::span<const std::string_view> NamesOf<Blamed>() {
  return kBlamed;
}

Blamed BlamedFor(FailureKind kind, bool within_plan) {
  switch (kind) {
    case FailureKind::kNodeSilent:
    case FailureKind::kDeviceError:
    case FailureKind::kSlow:
      return Blamed::kNode;
    case FailureKind::kOutOfMemory:
      return within_plan ? Blamed::kNode : Blamed::kNobody;
    case FailureKind::kLinkLost:
      return Blamed::kLink;
    default:
      return Blamed::kNobody;
  }
}

FailureKind KindOf(RankExit code, int system_error) {
  if (system_error == ENOSPC) return FailureKind::kDiskFull;
  if (system_error == EDQUOT) return FailureKind::kQuota;
  if (system_error == ENOMEM) return FailureKind::kOutOfMemory;
  if (IsAmong(kPathErrors, system_error)) return FailureKind::kConfiguration;
  switch (code) {
    case RankExit::kSetup:
      return system_error != 0 ? FailureKind::kStorage : FailureKind::kConfiguration;
    case RankExit::kWireup:
      return FailureKind::kLaunch;
    case RankExit::kTransport:
    case RankExit::kLauncherLost:
      return FailureKind::kLinkLost;
    case RankExit::kCheckpoint:
      return FailureKind::kStorage;
    case RankExit::kDevice:
      return FailureKind::kDeviceError;
    case RankExit::kDiverged:
      return FailureKind::kDiverged;
    case RankExit::kMemory:
      return FailureKind::kOutOfMemory;
    default:
      return FailureKind::kUnknown;
  }
}

FailureKind KindOfSignal(int signal) {
  return IsAmong(kOwnSignals, signal) ? FailureKind::kCrashed : FailureKind::kKilled;
}

FailureKind KindOfExit(int exit_code) {
  const FailureKind kind = KindOf(static_cast<RankExit>(exit_code));
  return kind == FailureKind::kUnknown && exit_code != ToInt(RankExit::kAborted)
             ? FailureKind::kCrashed
             : kind;
}

}  // namespace adaptive_train
