// A libnccl for threads of one process that moves data between them in the host's memory, and whose
// calls go wrong by a script. What NCCL forbids, it refuses.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/comm/nccl_library.h"

#define FAKE_NCCL_API [[gnu::visibility("default")]]

namespace adaptive_train::fake_nccl {

enum class Call : std::uint8_t { kInit, kSplit, kEnqueue, kFinalize, kDestroy, kAbort };
enum class Kind : std::uint8_t {
  kInProgress,    // the call is in progress for ever, and nothing comes of it
  kError,         // it returns `code`
  kLateError,     // it returns well, and after `polls` questions for errors the answer is `code`
  kSlow,          // it is in progress for `polls` such questions
  kNeverReturns,  // until Release; of kDestroy and kAbort
};

struct Fault {
  int rank = 0;  // in the communicator that was not split
  Call call = Call::kEnqueue;
  int nth = 0;  // of the rank's calls of that kind, from 0; a group of calls is one
  Kind kind = Kind::kInProgress;
  nccl::ncclResult_t code = nccl::ncclSuccess;
  int polls = 0;
};

struct Script {
  std::vector<Fault> faults = {};
  /// Ranks hear of it, as ncclRemoteError, when another one aborts or dies; otherwise they wait.
  bool peers_learn = false;
};

/// For the communicator of this identifier, before anyone joins it.
FAKE_NCCL_API void Play(const nccl::ncclUniqueId& id, Script script);
/// The rank's process is gone.
FAKE_NCCL_API void Die(const nccl::ncclUniqueId& id, int rank);
/// What ncclGetVersion tells from now on in this thread.
FAKE_NCCL_API void SayVersion(int version);
/// Calls that never return do so from now on; blocks until they have. For the end of a program.
FAKE_NCCL_API void Release();

/// A stream, for one communicator. Its work is done by nobody in particular, as soon as it can be.
FAKE_NCCL_API nccl::cudaStream_t NewStream();
FAKE_NCCL_API void DeleteStream(nccl::cudaStream_t stream);
/// How many calls' work was put in, and is done.
FAKE_NCCL_API std::int64_t Enqueued(nccl::cudaStream_t stream);
FAKE_NCCL_API std::int64_t Done(nccl::cudaStream_t stream);

}  // namespace adaptive_train::fake_nccl
