// The part of NVIDIA's collective communication library (NCCL) that ranks use, loaded at run time
// where it is installed.
#pragma once

#include <cstddef>
#include <limits>
#include <string>

#include "core/result.h"

namespace adaptive_train::nccl {

// NCCL's public C interface as of 2.18, which later versions keep. Its names are kept. Declared here
// so that every build has it: nccl.h needs CUDA's headers. A test compares the two.
using ncclComm_t = struct ncclComm*;
using cudaStream_t = void*;

struct ncclUniqueId {
  char internal[128];
};

enum ncclResult_t : int {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7
};
enum ncclDataType_t : int { ncclFloat16 = 6, ncclFloat32 = 7, ncclFloat64 = 8, ncclBfloat16 = 9 };
enum ncclRedOp_t : int { ncclSum = 0 };

inline constexpr int kNoColor = -1;  // NCCL_SPLIT_NOCOLOR
inline constexpr int kUndefined = std::numeric_limits<int>::min();
inline constexpr int kConfigVersion = 21800;
inline constexpr unsigned kConfigMagic = 0xcafebeef;

/// As NCCL 2.18 had it. Later versions take it by its size and version, and know the defaults of
/// what it lacks.
struct ncclConfig_t {
  std::size_t size = sizeof(ncclConfig_t);
  unsigned magic = kConfigMagic;
  unsigned version = kConfigVersion;
  int blocking = 0;
  int cgaClusterSize = kUndefined;
  int minCTAs = kUndefined;
  int maxCTAs = kUndefined;
  const char* netName = nullptr;
  int splitShare = kUndefined;
};

/// NCCL's functions. A value; the library stays loaded until the process ends, since a thread may
/// be left behind in it. Which threads may call what is NCCL's matter.
struct Library {
  /// Fails in one line if the library cannot be loaded, is older than 2.18, or lacks a function.
  static Result<Library> Open(const std::string& path = "libnccl.so.2");

  std::string version;  // "2.28.9"

  ncclResult_t (*get_version)(int*);
  ncclResult_t (*get_unique_id)(ncclUniqueId*);
  ncclResult_t (*comm_init_rank_config)(ncclComm_t*, int, ncclUniqueId, int, ncclConfig_t*);
  ncclResult_t (*comm_split)(ncclComm_t, int, int, ncclComm_t*, ncclConfig_t*);
  ncclResult_t (*comm_get_async_error)(ncclComm_t, ncclResult_t*);
  ncclResult_t (*comm_finalize)(ncclComm_t);
  ncclResult_t (*comm_destroy)(ncclComm_t);
  ncclResult_t (*comm_abort)(ncclComm_t);
  ncclResult_t (*all_reduce)(const void*, void*, std::size_t, ncclDataType_t, ncclRedOp_t,
                             ncclComm_t, cudaStream_t);
  ncclResult_t (*reduce_scatter)(const void*, void*, std::size_t, ncclDataType_t, ncclRedOp_t,
                                 ncclComm_t, cudaStream_t);
  ncclResult_t (*all_gather)(const void*, void*, std::size_t, ncclDataType_t, ncclComm_t,
                             cudaStream_t);
  ncclResult_t (*send)(const void*, std::size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
  ncclResult_t (*receive)(void*, std::size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
  ncclResult_t (*group_start)();
  ncclResult_t (*group_end)();
  const char* (*get_error_string)(ncclResult_t);
  const char* (*get_last_error)(ncclComm_t);
};

/// "2.28.9" of 22809.
std::string VersionText(int version);

}  // namespace adaptive_train::nccl
