// What kinds of failure there are, and what each of them says something about.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/orders.h"
#include "core/rank_exit.h"

namespace adaptive_train {

/// Why a run lost a rank, as it is stored and told.
enum class FailureKind : std::uint8_t {
  kUnknown,        // nothing shows why
  kNodeSilent,     // nothing was heard from a node: frozen, cut off or dead
  kRankSilent,     // a rank was stopped, and its node is alive
  kLinkLost,       // two nodes that are alive do not reach each other
  kDeviceError,    // a kernel or the device's library failed
  kOutOfMemory,    // an allocation failed, or the system ended the process for its memory
  kKilled,         // by a signal from outside
  kCrashed,        // by its own fault: a bad access, an abort, an exit that nobody asked for
  kDiverged,       // replicas hold different parameters
  kDiskFull,       // no space left
  kQuota,          // the user's share of a file system is used up
  kStorage,        // a file system that failed otherwise, or did not answer
  kConfiguration,  // what would come again: another model, missing data
  kLaunch,         // the ranks did not start: Slurm's own trouble, PMIx, wire-up
  kSlow,           // a node computed slower than planned, and the run went on with it or without it
  kInjected,       // asked for by run --inject
};

/// What a failure counts against when later jobs are placed.
enum class Blamed : std::uint8_t { kNobody, kNode, kLink };

// Their names in the store and on the wire: NameOf and ChoiceOf of core/orders.h. The name of
// Blamed::kNobody is empty.
template <>
std::span<const std::string_view> NamesOf<FailureKind>();
template <>
std::span<const std::string_view> NamesOf<Blamed>();

/// `within_plan`: the rank took no more memory than its plan says. Where it took more, a lack of
/// memory is the plan's fault.
Blamed BlamedFor(FailureKind kind, bool within_plan);

/// Of a rank that ends with `code` after an error; `system_error` is the errno behind it, or 0.
FailureKind KindOf(RankExit code, int system_error = 0);
/// Of a process that `signal` has ended.
FailureKind KindOfSignal(int signal);
/// The same for an exit code: RankExit's, or one that no rank gives by itself.
FailureKind KindOfExit(int exit_code);

}  // namespace adaptive_train
