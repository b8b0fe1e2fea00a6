// Deadlines and sizes that more than one program must agree on.
#pragma once

#include <chrono>
#include <cstddef>

namespace adaptive_train {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

/// A rank and its launcher send each other something at least this often.
inline constexpr std::chrono::milliseconds kHeartbeatPeriod = 250ms;
/// The launcher considers a rank lost after this much silence, unless launch.silence_seconds says
/// otherwise. With the time to notice it and to wait for others, a failure is seen within 3 s.
inline constexpr std::chrono::milliseconds kRankSilenceLimit = 2500ms;
/// A rank that has not heard from its launcher for this long ends itself; longer where
/// launch.silence_seconds is.
inline constexpr std::chrono::milliseconds kLauncherSilenceLimit = 8s;

// Deadlines for few ranks; core/launch_settings.h extends them for more. This one is from the start
// of a step to the hello of every rank.
inline constexpr std::chrono::milliseconds kHelloDeadline = 60s;
/// From the first rank's hello to the last rank's end of PMIx_Init.
inline constexpr std::chrono::milliseconds kHelloSpread = 10s;
/// One PMIx_Init; one fence; one get.
inline constexpr std::chrono::milliseconds kPmixInitDeadline = 30s;
inline constexpr std::chrono::milliseconds kFenceDeadline = 5s;
/// One command on every node of an allocation.
inline constexpr std::chrono::milliseconds kShortStepDeadline = 60s;
/// A hung fence cannot be retried in its namespace, so the launcher starts a new step, at most this
/// often.
inline constexpr int kMaxLaunchRetries = 2;

/// The limit of ranks: message tags have no room for more.
inline constexpr std::size_t kMostRanks = 4096;

/// How long job_prolog waits for the probe, unless plugstack.conf says otherwise.
inline constexpr std::chrono::milliseconds kProbeDeadline = 2s;
/// A node snapshot is never larger; anything larger is garbage.
inline constexpr std::size_t kMaxSnapshotBytes = std::size_t{1} << 20;
/// The text of --adaptive-train=... is never longer.
inline constexpr std::size_t kMaxOptionBytes = 1024;
/// One message on the control channel.
inline constexpr std::size_t kMaxControlMessageBytes = std::size_t{1} << 20;
/// The most data accepted from a connection that has not proved to be a rank.
inline constexpr std::size_t kMaxStrangerBytes = 4096;

}  // namespace adaptive_train
