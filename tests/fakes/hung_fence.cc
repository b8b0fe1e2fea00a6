// A fault for tests, by LD_PRELOAD: PMIx fences of rank 0 that never end. The file HUNG_FENCES
// beside this library holds how many are still to come.
#include <dlfcn.h>
#include <pmix.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

/// Takes one from the count; false if there was none left.
bool TakeOne() {
  Dl_info self{};
  if (::dladdr(reinterpret_cast<void*>(&TakeOne), &self) == 0) return false;
  std::string path(self.dli_fname);
  path = path.substr(0, path.rfind('/')) + "/HUNG_FENCES";
  int left = 0;
  if (std::FILE* file = std::fopen(path.c_str(), "r"); file != nullptr) {
    if (std::fscanf(file, "%d", &left) != 1) left = 0;
    std::fclose(file);
  }
  if (left <= 0) return false;
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) std::abort();
  std::fprintf(file, "%d\n", left - 1);
  std::fclose(file);
  return true;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) pmix_status_t PMIx_Fence_nb(
    const pmix_proc_t procs[], std::size_t nprocs, const pmix_info_t info[], std::size_t ninfo,
    pmix_op_cbfunc_t done, void* data) {
  const char* rank = std::getenv("PMIX_RANK");
  if (rank != nullptr && std::strcmp(rank, "0") == 0 && TakeOne()) return PMIX_SUCCESS;
  using Fence = pmix_status_t (*)(const pmix_proc_t*, std::size_t, const pmix_info_t*, std::size_t,
                                  pmix_op_cbfunc_t, void*);
  static const auto real = reinterpret_cast<Fence>(::dlsym(RTLD_NEXT, "PMIx_Fence_nb"));
  return real(procs, nprocs, info, ninfo, done, data);
}
