#include "runtime/comm/ucx_transport.h"

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#include <cassert>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <future>
#include <mutex>
#include <thread>
#include <utility>

namespace adaptive_train {
namespace {

/// One send or receive. Keeps itself alive (`self`) until UCX has released the buffer.
struct UcxPart final : Part {
  ReceiveDone done;
  void* request = nullptr;
  int peer = -1;
  PeerTraffic* traffic = nullptr;  // of a receive's peer
  bool is_send = false;
  bool over = false;
  std::size_t capacity = 0;  // of a receive's buffer
  // A receive whose message is already there ends inside the call that starts it.
  bool starting = false;
  ucs_status_t early_status = UCS_INPROGRESS;
  std::size_t early_bytes = 0;
  std::shared_ptr<UcxPart> self;

  void Finish(ucs_status_t status, std::size_t bytes, const std::string& lost = "") {
    over = true;
    if (!is_send) --traffic->awaited;
    if (!is_send && status == UCS_OK) {
      ++traffic->received;
      traffic->received_bytes += static_cast<std::int64_t>(bytes);
    }
    auto keep = std::move(self);
    const ReceiveDone call = std::move(done);  // its captures must not outlive the part
    if (status == UCS_OK) return call("", bytes);
    if (!lost.empty()) return call(lost, 0);
    if (status == UCS_ERR_MESSAGE_TRUNCATED)
      return call(fmt::format("the message is longer than {} bytes", capacity), 0);
    call(ucs_status_string(status), 0);
  }
};

/// The communication thread and its UCX objects.
class UcxThread final : public Transport {
 public:
  UcxThread() = default;
  ~UcxThread() override;
  UcxThread(const UcxThread&) = delete;
  UcxThread& operator=(const UcxThread&) = delete;

  /// Blocks until the thread has opened the transports.
  Result<void> Start();

  void Post(std::function<void()> task) override;
  double CpuSeconds() const override;
  const std::string& Address() const override { return address_; }
  void SetPeers(std::vector<std::string> addresses) override;
  std::shared_ptr<Part> Send(int peer, std::uint64_t tag, const void* data, std::size_t bytes,
                             Sending sending, PartDone done) override;
  std::shared_ptr<Part> ReceiveUpTo(int peer, std::uint64_t tag, void* data, std::size_t capacity,
                                    ReceiveDone done) override;
  std::optional<std::uint64_t> Unclaimed(std::uint64_t tag, std::uint64_t mask) const override;
  std::vector<PeerTraffic> Traffic() const override;
  void Cancel(const std::shared_ptr<Part>& part) override;

 private:
  struct Peer {
    std::string address;
    PeerTraffic traffic;
    ucp_ep_h endpoint = nullptr;
    std::string lost;  // why the link is gone; empty if it is not
  };

  void Freeze() override { frozen_ = true; }
  Result<std::string> Open();
  void Loop();
  bool RunTasks();
  void Close();
  void CloseEndpoint(Peer& peer, bool force);
  ucp_ep_h Endpoint(int peer);
  void Wake() const {
    const std::uint64_t one = 1;
    // EAGAIN means that a wake-up is already pending.
    [[maybe_unused]] const ssize_t n = ::write(wake_fd_, &one, sizeof one);
  }

  std::string address_;
  mutable std::thread thread_;  // mutable: reading its clock is logically const
  int wake_fd_ = -1;

  std::mutex mutex_;
  std::deque<std::function<void()>> tasks_;  // guarded by mutex_
  bool stop_ = false;                        // guarded by mutex_

  // Used by the thread only.
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int worker_fd_ = -1;
  std::vector<Peer> peers_;
  bool frozen_ = false;  // UCX makes no progress any more
};

void OnPeerError(void* arg, ucp_ep_h, ucs_status_t status) {
  *static_cast<std::string*>(arg) = ucs_status_string(status);
}

void OnSent(void* request, ucs_status_t status, void* user) {
  auto* part = static_cast<UcxPart*>(user);
  ucp_request_free(request);
  part->request = nullptr;
  part->Finish(status, 0);
}

void OnReceived(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info, void* user) {
  auto* part = static_cast<UcxPart*>(user);
  if (part->starting) {
    part->early_status = status;
    part->early_bytes = info->length;
    return;
  }
  ucp_request_free(request);
  part->request = nullptr;
  part->Finish(status, info->length);
}

std::string UcxFailure(const char* call, ucs_status_t status) {
  return fmt::format("{}: {}", call, ucs_status_string(status));
}

Result<std::string> UcxThread::Open() {
  auto fail = [](const char* call, ucs_status_t status) {
    return Fail(UcxFailure(call, status), ExitCode::kRankFailure);
  };
  ucp_config_t* config = nullptr;
  ucs_status_t status = ucp_config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) return fail("ucp_config_read", status);
  // Shorter than our own deadlines, unless the user has chosen: a lost peer must not look slow.
  if (std::getenv("UCX_KEEPALIVE_INTERVAL") == nullptr)
    ucp_config_modify(config, "KEEPALIVE_INTERVAL", "2s");
  if (std::getenv("UCX_RNDV_SEND_NBR_THRESH") == nullptr)
    ucp_config_modify(config, "RNDV_SEND_NBR_THRESH", "512k");
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
  status = ucp_init(&params, config, &context_);
  ucp_config_release(config);
  if (status != UCS_OK) return fail("ucp_init", status);
  ucp_worker_params_t worker_params{};
  worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker_params.thread_mode = UCS_THREAD_MODE_SINGLE;
  status = ucp_worker_create(context_, &worker_params, &worker_);
  if (status != UCS_OK) return fail("ucp_worker_create", status);
  status = ucp_worker_get_efd(worker_, &worker_fd_);
  if (status != UCS_OK) return fail("ucp_worker_get_efd", status);
  ucp_address_t* address = nullptr;
  std::size_t length = 0;
  status = ucp_worker_get_address(worker_, &address, &length);
  if (status != UCS_OK) return fail("ucp_worker_get_address", status);
  std::string text(reinterpret_cast<const char*>(address), length);
  ucp_worker_release_address(worker_, address);
  return text;
}

bool UcxThread::RunTasks() {
  std::deque<std::function<void()>> now;
  bool stopping = false;
  {
    std::lock_guard lock(mutex_);
    now.swap(tasks_);
    stopping = stop_;
  }
  for (auto& task : now) task();
  return !stopping;
}

void UcxThread::Loop() {
  while (RunTasks()) {
    while (!frozen_ && ucp_worker_progress(worker_) != 0) {
    }
    // Events that came since the last progress make arm refuse: then progress again.
    if (!frozen_ && ucp_worker_arm(worker_) == UCS_ERR_BUSY) continue;
    // poll leaves negative descriptors out.
    pollfd fds[2] = {{frozen_ ? -1 : worker_fd_, POLLIN, 0}, {wake_fd_, POLLIN, 0}};
    if (::poll(fds, 2, -1) > 0 && (fds[1].revents & POLLIN) != 0) {
      std::uint64_t count = 0;
      [[maybe_unused]] const ssize_t n = ::read(wake_fd_, &count, sizeof count);
    }
  }
}

void UcxThread::CloseEndpoint(Peer& peer, bool force) {
  if (peer.endpoint == nullptr) return;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = force ? UCP_EP_CLOSE_FLAG_FORCE : 0;
  void* request = ucp_ep_close_nbx(peer.endpoint, &param);
  peer.endpoint = nullptr;
  if (!UCS_PTR_IS_PTR(request)) return;
  // A peer that left first may never answer the flush. After one second the worker is closed
  // anyway.
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (ucp_request_check_status(request) == UCS_INPROGRESS &&
         std::chrono::steady_clock::now() < until) {
    if (ucp_worker_progress(worker_) == 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ucp_request_free(request);
}

void UcxThread::Close() {
  // Buffers of a frozen transport may be gone, and closing would read and write them. The process,
  // which ends soon, gives back the rest.
  if (frozen_) return;
  for (Peer& peer : peers_) CloseEndpoint(peer, !peer.lost.empty());
  if (worker_ != nullptr) ucp_worker_destroy(worker_);
  if (context_ != nullptr) ucp_cleanup(context_);
}

ucp_ep_h UcxThread::Endpoint(int index) {
  Peer& peer = peers_[static_cast<std::size_t>(index)];
  if (peer.endpoint != nullptr || !peer.lost.empty()) return peer.endpoint;
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(peer.address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {OnPeerError, &peer.lost};
  const ucs_status_t status = ucp_ep_create(worker_, &params, &peer.endpoint);
  if (status != UCS_OK) {
    peer.lost = UcxFailure("ucp_ep_create", status);
    peer.endpoint = nullptr;
  }
  return peer.endpoint;
}

Result<void> UcxThread::Start() {
  wake_fd_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_fd_ < 0)
    return Fail(fmt::format("eventfd: {}", std::strerror(errno)), ExitCode::kRankFailure);
  std::promise<Result<std::string>> opened;
  auto address = opened.get_future();
  thread_ = std::thread([this, &opened] {
    auto result = Open();
    const bool good = result.has_value();
    opened.set_value(std::move(result));
    if (good) Loop();
    Close();
  });
  auto result = address.get();
  if (!result) return tl::unexpected(result.error());
  address_ = std::move(*result);
  return {};
}

UcxThread::~UcxThread() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  if (wake_fd_ >= 0) Wake();
  if (thread_.joinable()) thread_.join();
  if (wake_fd_ >= 0) ::close(wake_fd_);
}

void UcxThread::SetPeers(std::vector<std::string> addresses) {
  Post([this, addresses = std::move(addresses)]() mutable {
    peers_.resize(addresses.size());
    for (std::size_t i = 0; i < addresses.size(); ++i) {
      peers_[i].address = std::move(addresses[i]);
      peers_[i].traffic.rank = static_cast<int>(i);
    }
  });
}

void UcxThread::Post(std::function<void()> task) {
  {
    std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  Wake();
}

double UcxThread::CpuSeconds() const {
  clockid_t clock{};
  timespec time{};
  [[maybe_unused]] const bool known =
      ::pthread_getcpuclockid(thread_.native_handle(), &clock) == 0 &&
      ::clock_gettime(clock, &time) == 0;
  assert(known);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

std::shared_ptr<Part> UcxThread::Send(int peer, std::uint64_t tag, const void* data,
                                      std::size_t bytes, Sending sending, PartDone done) {
  auto part = std::make_shared<UcxPart>();
  part->done = [done = std::move(done)](const std::string& cause, std::size_t) { done(cause); };
  part->peer = peer;
  part->is_send = true;
  PeerTraffic& traffic = peers_[static_cast<std::size_t>(peer)].traffic;
  ++traffic.sent;
  traffic.sent_bytes += static_cast<std::int64_t>(bytes);
  ucp_ep_h endpoint = Endpoint(peer);
  const std::string& lost = peers_[static_cast<std::size_t>(peer)].lost;
  if (endpoint == nullptr || !lost.empty()) {
    // Called later, as promised: never from inside the caller's own call.
    Post([part, cause = lost.empty() ? std::string("the link is closed") : lost] {
      part->Finish(UCS_ERR_CONNECTION_RESET, 0, cause);
    });
    return part;
  }
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  // The rendezvous then begins at another length (ucp_tag_send_nbx; RNDV_SEND_NBR_THRESH).
  if (sending == Sending::kAtOnce) param.op_attr_mask |= UCP_OP_ATTR_FLAG_FAST_CMPL;
  param.cb.send = OnSent;
  param.user_data = part.get();
  part->self = part;
  void* request = ucp_tag_send_nbx(endpoint, data, bytes, tag, &param);
  if (UCS_PTR_IS_PTR(request)) {
    part->request = request;
  } else {
    Post([part, status = UCS_PTR_STATUS(request)] { part->Finish(status, 0); });
  }
  return part;
}

std::shared_ptr<Part> UcxThread::ReceiveUpTo(int peer, std::uint64_t tag, void* data,
                                             std::size_t capacity, ReceiveDone done) {
  auto part = std::make_shared<UcxPart>();
  part->done = std::move(done);
  part->peer = peer;
  part->traffic = &peers_[static_cast<std::size_t>(peer)].traffic;
  ++part->traffic->awaited;
  part->capacity = capacity;
  // Without this flag, a receive whose message is already there would end at once. UCX before 1.16
  // then reports its length only to the callback.
  ucp_request_param_t param{};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  param.cb.recv = OnReceived;
  param.user_data = part.get();
  part->self = part;
  part->starting = true;
  void* request = ucp_tag_recv_nbx(worker_, data, capacity, tag, ~std::uint64_t{0}, &param);
  part->starting = false;
  if (!UCS_PTR_IS_PTR(request)) {
    Post([part, status = UCS_PTR_STATUS(request)] { part->Finish(status, 0); });
  } else if (part->early_status != UCS_INPROGRESS) {
    ucp_request_free(request);
    Post([part] { part->Finish(part->early_status, part->early_bytes); });
  } else {
    part->request = request;
  }
  return part;
}

std::optional<std::uint64_t> UcxThread::Unclaimed(std::uint64_t tag, std::uint64_t mask) const {
  ucp_tag_recv_info_t info{};
  if (ucp_tag_probe_nb(worker_, tag, mask, 0, &info) == nullptr) return std::nullopt;
  return info.sender_tag;
}

std::vector<PeerTraffic> UcxThread::Traffic() const {
  std::vector<PeerTraffic> traffic;
  for (const Peer& peer : peers_) {
    if (peer.traffic.sent + peer.traffic.received + peer.traffic.awaited > 0)
      traffic.push_back(peer.traffic);
  }
  return traffic;
}

void UcxThread::Cancel(const std::shared_ptr<Part>& of_ours) {
  auto part = std::static_pointer_cast<UcxPart>(of_ours);
  // Posted, since the caller may be inside a UCX callback, where the worker must not be progressed.
  Post([this, part = std::move(part)] {
    if (!part || part->over || part->request == nullptr) return;
    if (!part->is_send) {
      ucp_request_cancel(worker_, part->request);
      return;
    }
    Peer& peer = peers_[static_cast<std::size_t>(part->peer)];
    if (peer.lost.empty()) peer.lost = "the link was closed to cancel a send";
    CloseEndpoint(peer, true);
  });
}

}  // namespace

Result<std::unique_ptr<Transport>> OpenUcx() {
  auto transport = std::make_unique<UcxThread>();
  if (auto started = transport->Start(); !started) return tl::unexpected(started.error());
  return transport;
}

}  // namespace adaptive_train
