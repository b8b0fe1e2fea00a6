// A fault for tests, by LD_PRELOAD: while the file LOST_SENDS beside this library is there, what
// the rank whose number stands in it sends by UCX leaves and never arrives, as on a link that
// carries nothing any more. It begins with a message of some size: in the exchange of gradients,
// where all ranks are in the same step, and not between two messages that end it.
#include <dlfcn.h>
#include <ucp/api/ucp.h>

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

constexpr std::size_t kBegins = 1024;  // bytes

bool Loses() {
  Dl_info self{};
  const char* rank = std::getenv("PMIX_RANK");
  if (rank == nullptr || ::dladdr(reinterpret_cast<void*>(&Loses), &self) == 0) return false;
  std::string path(self.dli_fname);
  path = path.substr(0, path.rfind('/')) + "/LOST_SENDS";
  std::FILE* file = std::fopen(path.c_str(), "r");
  if (file == nullptr) return false;
  int lost = -1;
  const bool read = std::fscanf(file, "%d", &lost) == 1;
  std::fclose(file);
  return read && lost == std::atoi(rank);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) ucs_status_ptr_t ucp_tag_send_nbx(
    ucp_ep_h endpoint, const void* bytes, std::size_t count, ucp_tag_t tag,
    const ucp_request_param_t* param) {
  using Send = ucs_status_ptr_t (*)(ucp_ep_h, const void*, std::size_t, ucp_tag_t,
                                    const ucp_request_param_t*);
  static const auto real = reinterpret_cast<Send>(::dlsym(RTLD_NEXT, "ucp_tag_send_nbx"));
  static std::atomic<bool> begun{false};
  const bool loses = (begun || count >= kBegins) && Loses();
  begun = loses;
  return loses ? nullptr : real(endpoint, bytes, count, tag, param);
}
