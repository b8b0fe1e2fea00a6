#include "runtime/comm/nccl_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace adaptive_train::nccl {
namespace {

/// Sets `missing` to the first symbol that the library lacks.
template <class Function>
void Load(void* library, const char* symbol, Function& function, std::string& missing) {
  function = reinterpret_cast<Function>(::dlsym(library, symbol));
  if (function == nullptr && missing.empty()) missing = symbol;
}

/// The first symbol that is missing; empty: none.
std::string LoadAll(void* library, Library& l) {
  std::string missing;
  Load(library, "ncclGetUniqueId", l.get_unique_id, missing);
  Load(library, "ncclCommInitRankConfig", l.comm_init_rank_config, missing);
  Load(library, "ncclCommSplit", l.comm_split, missing);
  Load(library, "ncclCommGetAsyncError", l.comm_get_async_error, missing);
  Load(library, "ncclCommFinalize", l.comm_finalize, missing);
  Load(library, "ncclCommDestroy", l.comm_destroy, missing);
  Load(library, "ncclCommAbort", l.comm_abort, missing);
  Load(library, "ncclAllReduce", l.all_reduce, missing);
  Load(library, "ncclReduceScatter", l.reduce_scatter, missing);
  Load(library, "ncclAllGather", l.all_gather, missing);
  Load(library, "ncclSend", l.send, missing);
  Load(library, "ncclRecv", l.receive, missing);
  Load(library, "ncclGroupStart", l.group_start, missing);
  Load(library, "ncclGroupEnd", l.group_end, missing);
  Load(library, "ncclGetErrorString", l.get_error_string, missing);
  Load(library, "ncclGetLastError", l.get_last_error, missing);
  return missing;
}

}  // namespace

std::string VersionText(int version) {
  const int major = version < 10'000 ? 1'000 : 10'000;
  return fmt::format("{}.{}.{}", version / major, version % major / 100, version % 100);
}

Result<Library> Library::Open(const std::string& path) {
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return Fail(
        fmt::format("NCCL cannot be loaded ({}); install libnccl2, or name its folder in "
                    "LD_LIBRARY_PATH",
                    ::dlerror()));
  const auto lacks = [&path](const std::string& symbol) {
    return Fail(fmt::format("{} has no {}: it is not NCCL", path, symbol));
  };
  Library loaded{};
  std::string missing;
  Load(library, "ncclGetVersion", loaded.get_version, missing);
  if (!missing.empty()) return lacks(missing);
  int version = 0;
  if (loaded.get_version(&version) != ncclSuccess)
    return Fail(fmt::format("NCCL does not tell its version ({})", path));
  if (version < kConfigVersion)
    return Fail(fmt::format("NCCL {} is too old ({}): 2.18 or later is needed",
                            VersionText(version), path));
  missing = LoadAll(library, loaded);
  if (!missing.empty()) return lacks(missing);
  loaded.version = VersionText(version);
  return loaded;
}

}  // namespace adaptive_train::nccl
