// What ranks and launcher say to each other over the control channel, and how it looks on the wire.
//
// A frame is a 4-byte big-endian length and that many bytes of JSON with a "type". Both sides are
// untrusted to each other until hello and welcome have proved that they know the job's token
// (core/token_proof.h). The launcher begins with a challenge.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/failure_kind.h"
#include "core/limits.h"
#include "core/profile.h"
#include "core/rank_status.h"
#include "core/result.h"
#include "core/step_metrics.h"

namespace adaptive_train {

// From the launcher, before it knows who has connected.
struct Challenge {
  std::string nonce;  // drawn for this connection alone
};

// From a rank.
struct Hello {
  int rank = -1;
  std::string host;
  std::int64_t pid = 0;
  std::string step_id;  // Slurm's JOB.STEP, empty without Slurm
  std::string nonce;    // drawn for this connection alone
  std::string proof;    // that the rank knows the token
};
struct Ready {};  // PMIx_Init is done
struct Wired {};  // every rank's address is known and a first sum over all ranks has come back
struct Resumed {  // the model is in memory
  std::int64_t step = 0;     // of the checkpoint it came from, 0 = from the start
  bool from_memory = false;  // it came from a state that was kept in memory
};
struct Metrics {
  RankMetrics values;
};
/// The variance of a layer that a rank does not have.
inline constexpr double kLayerNotHeld = -1;
/// What a rank measured of its layers in the steps of the profile.
struct LayerTimes {
  /// Without device_kind, model and time: the launcher knows them.
  std::vector<LayerMeasurement> entries;
  /// Of the gradient, relative to the layer's mean square; index = ModelShape::layers; kLayerNotHeld is
  /// possible. Empty: not measured.
  std::vector<double> variances;
};
struct Saved {  // a checkpoint is complete on disk
  std::int64_t step = 0;
  std::string path;
  double seconds = 0;  // from the step's end
};
struct Saving {             // the ranks wait for a checkpoint that they write
  std::int64_t blocks = 0;  // written by all of them so far; grows while the file system takes some
};
struct Notice {  // a line for the person who watches
  std::string text;
};
/// How gradients are exchanged from here on, and why: one of the ranks that decided speaks for all.
struct Decision {
  std::int64_t step = 0;  // after it
  std::string text;       // with its figures, for people
};
/// A fault of `run --inject` is about to happen to this rank.
struct Injected {
  std::string fault;  // core/injection.h
};
/// Why a rank ends: one clear line's worth.
struct RankFailure {
  int rank = -1;
  std::string host;
  std::string operation;  // "all-reduce of bucket 3", "PMIx fence", "checkpoint write"
  int peer = -1;          // the rank it was talking to, -1 = none
  std::string cause;
  std::int64_t step = 0;
  int exit_code = 0;  // a RankExit
  FailureKind kind = FailureKind::kUnknown;
  bool within_plan = false;  // the rank took no more memory than its plan says
};
/// The rank's process was sent a signal that is meant for the run.
struct Signalled {
  int number = 0;
};
struct Goodbye {
  std::int64_t step = 0;
};  // the rank ends as asked, after optimizer step `step`

// From the launcher.
struct Welcome {      // the rank is believed
  std::string proof;  // that the launcher knows the token
  // How long this rank waits for PMIx_Init, for Go, and for a fence.
  std::int64_t pmix_init_ms = 0, go_ms = 0, fence_ms = 0;
  std::int64_t silence_ms = 0;  // of the launcher, after which this rank ends itself
};
struct Go {};             // all ranks are ready: fence now
struct CheckpointNow {};  // save and go on
struct ProfileNow {};     // measure the layers once more
/// To be taken up after the next step on whose end all ranks know them; as WithShares allows.
struct NewShares {
  std::vector<std::int64_t> samples;  // sequences per step; index = replica
};
struct StatusNow {};    // say what you are at
struct Stop {};         // save and stop
struct StopUnsaved {};  // complete the save under way, if there is one, begin none, and stop
/// End the round of local steps with the step under way: replicas become one state, to be saved now.
struct EndRound {};
/// Leave the exchange that does not end, and save the last step's state by sums over this channel.
struct GiveUp {};
struct Abort {
  std::string reason;
};  // end at once

// From both.
struct Heartbeat {};
/// Numbers of one rank, and the launcher's answer: their sums over all ranks, element by element.
/// A rank sends the next ones when it has the answer.
struct Sum {
  std::vector<double> numbers;  // finite
};

using ControlMessage =
    std::variant<Challenge, Hello, Welcome, Ready, Wired, Resumed, Metrics, LayerTimes, Saving,
                 Saved, Notice, Decision, Injected, RankFailure, RankStatus, Signalled, Goodbye, Go,
                 CheckpointNow, ProfileNow, NewShares, StatusNow, Stop, StopUnsaved, EndRound,
                 GiveUp, Abort, Sum, Heartbeat>;

/// The frame of a message, ready to send.
std::string EncodeFrame(const ControlMessage& message);

/// Cuts a byte stream into messages. One stream, one thread.
class FrameReader {
 public:
  /// Takes bytes as they came.
  void Feed(std::string_view bytes) { buffer_.append(bytes); }
  /// The next whole message; nothing if more bytes are needed; an error if the stream is garbage
  /// (too long a frame, no JSON, unknown type), after which it must be closed.
  Result<std::optional<ControlMessage>> Next();

 private:
  std::string buffer_;
};

}  // namespace adaptive_train
