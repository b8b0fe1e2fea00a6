// A fault for tests, by LD_PRELOAD: every twentieth message that a rank sends by UCX leaves 20 ms
// late, and with it those behind it, as in a network that drops 5 % of what it carries.
#include <dlfcn.h>
#include <ucp/api/ucp.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

extern "C" __attribute__((visibility("default"))) ucs_status_ptr_t ucp_tag_send_nbx(
    ucp_ep_h endpoint, const void* bytes, std::size_t count, ucp_tag_t tag,
    const ucp_request_param_t* param) {
  using Send = ucs_status_ptr_t (*)(ucp_ep_h, const void*, std::size_t, ucp_tag_t,
                                    const ucp_request_param_t*);
  static const auto real = reinterpret_cast<Send>(::dlsym(RTLD_NEXT, "ucp_tag_send_nbx"));
  static std::atomic<unsigned> sent{0};
  if (std::getenv("PMIX_RANK") != nullptr && sent++ % 20 == 19)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  return real(endpoint, bytes, count, tag, param);
}
