#include "db/service/store_service.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "db/launcher_process.h"
#include "db/service/answer_request.h"
#include "db/service/caller.h"
#include "db/store_message.h"

namespace adaptive_train {
namespace {

namespace asio = boost::asio;
using asio::local::stream_protocol;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;
using store_answer::Refused;

constexpr std::chrono::milliseconds kTickPeriod{500};
constexpr std::chrono::seconds kStopLimit{10}, kPublishPeriod{15};

tl::unexpected<Error> FailListen(const std::filesystem::path& socket, const std::string& why) {
  return Fail(fmt::format("socket {}: {}", socket.string(), why), ExitCode::kStore);
}

}  // namespace

/// One client: a request, its answer, the next request. A session whose first request is refused is
/// closed. While an answer is made, `caller` and `greeted` belong to the thread that makes it; all
/// else is the thread's that runs `io`.
class StoreService::Session : public std::enable_shared_from_this<Session> {
 public:
  enum class State { kNew, kIdle, kReceiving, kAnswering, kSending };

  Session(stream_protocol::socket socket, StoreService* service, std::uint64_t its_number,
          uid_t uid)
      : number(its_number), socket_(std::move(socket)), service_(service) {
    caller.uid = uid;
    caller.is_operator = service->settings_.operators.contains(uid);
    until = Clock::now() + Limits().hello;
  }

  void ReadHeader() {
    asio::async_read(socket_, asio::buffer(header_),
                     [self = shared_from_this()](const error_code& error, std::size_t) {
                       if (self->service_ == nullptr) return;
                       if (error) return self->service_->Remove(self);
                       self->ReadText(FrameSize(self->header_));
                     });
  }

  void Send(const std::string& text) {
    if (service_ == nullptr) return;
    out_ = FrameOf(text);
    state = State::kSending;
    until = Clock::now() + Limits().frame;
    asio::async_write(socket_, asio::buffer(out_),
                      [self = shared_from_this()](const error_code& error, std::size_t) {
                        if (self->service_ != nullptr) self->Sent(!error);
                      });
  }

  void Refuse(const std::string& why) {
    last_ = true;
    Send(ToText(Refused{why}));
  }

  /// The answer to the first request. By a thread of the readers.
  StoreAnswer Greeted(const StoreRequest& first) {
    const auto* hello = std::get_if<store_request::Hello>(&first);
    if (hello == nullptr) return Refused{"a connection begins with hello"};
    caller.user = NameOfUser(caller.uid);
    StoreAnswer answer = Greet(*hello);
    greeted = std::holds_alternative<store_answer::Welcome>(answer);
    return answer;
  }

  /// Forgets the service and closes.
  void Drop() {
    service_ = nullptr;
    error_code ignored;
    socket_.close(ignored);
  }

  /// No request has come, not even in part.
  bool IsIdle() const { return state <= State::kIdle; }
  bool HasRequest() const { return state > State::kReceiving; }

  const std::uint64_t number;
  Caller caller;
  bool greeted = false;
  State state = State::kNew;
  Clock::time_point until;   // what it does now ends by then
  std::size_t reserved = 0;  // bytes of its request

 private:
  const ServiceLimits& Limits() const { return service_->settings_.limits; }

  void ReadText(std::size_t size) {
    if (size > kMaxFrameBytes)
      return Refuse(
          fmt::format("a request of {} bytes; at most {} are allowed", size, kMaxFrameBytes));
    if (!service_->Reserve(*this, size))
      return Refuse("too many large requests at once: send the next when one is answered");
    if (state == State::kIdle) until = Clock::now() + Limits().frame;
    state = State::kReceiving;
    text_.resize(size);
    asio::async_read(socket_, asio::buffer(text_),
                     [self = shared_from_this()](const error_code& error, std::size_t) {
                       if (self->service_ == nullptr) return;
                       if (error) return self->service_->Remove(self);
                       self->state = State::kAnswering;
                       self->until = Clock::time_point::max();
                       self->service_->Understand(self, std::exchange(self->text_, {}));
                     });
  }

  void Sent(bool well) {
    service_->Reserve(*this, 0);
    out_ = {};
    if (!well || last_ || !greeted || service_->stopping_)
      return service_->Remove(shared_from_this());
    state = State::kIdle;
    until = Clock::now() + Limits().idle;
    ReadHeader();
  }

  stream_protocol::socket socket_;
  StoreService* service_;
  char header_[kFrameHeaderBytes];
  std::string text_, out_;
  bool last_ = false;  // it is closed after the answer
};

StoreService::StoreService(asio::io_context& io, Settings settings, RequestReaders& readers,
                           RequestWriter& writer)
    : io_(io),
      acceptor_(io),
      tick_(io),
      settings_(std::move(settings)),
      readers_(readers),
      writer_(writer) {}

Result<std::unique_ptr<StoreService>> StoreService::Listen(asio::io_context& io, Settings settings,
                                                           RequestReaders& readers,
                                                           RequestWriter& writer) {
  std::unique_ptr<StoreService> self(new StoreService(io, std::move(settings), readers, writer));
  if (auto bound = self->Bind(); !bound) return tl::unexpected(bound.error());
  self->Accept();
  self->PublishLevels();
  self->Tick();
  return self;
}

StoreService::~StoreService() {
  for (auto& [number, session] : sessions_) session->Drop();
  if (bound_) ::unlink(settings_.socket.c_str());
}

Result<void> StoreService::Bind() {
  const std::filesystem::path& path = settings_.socket;
  if (path.native().size() >= sizeof(sockaddr_un::sun_path))
    return FailListen(path, fmt::format("a socket's path has at most {} bytes: name another",
                                        sizeof(sockaddr_un::sun_path) - 1));
  const stream_protocol::endpoint endpoint(path.string());
  struct stat entry {};
  if (::lstat(path.c_str(), &entry) == 0) {
    if (!S_ISSOCK(entry.st_mode))
      return FailListen(path, "this is no socket: remove it, or name another");
    error_code error;
    stream_protocol::socket other(io_);
    other.connect(endpoint, error);
    if (error != asio::error::connection_refused)
      return FailListen(path, "another process serves it: end it, or name another");
    ::unlink(path.c_str());
  }
  error_code error;
  acceptor_.open(stream_protocol(), error);
  if (!error) acceptor_.bind(endpoint, error);
  bound_ = !error;
  if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
  if (error) return FailListen(path, "cannot listen: " + error.message());
  if (::chmod(path.c_str(), 0666) != 0)
    return FailListen(path, fmt::format("cannot be opened to all users: {}", std::strerror(errno)));
  return {};
}

void StoreService::Accept() {
  acceptor_.async_accept([this](const error_code& error, stream_protocol::socket socket) {
    if (error == asio::error::operation_aborted || stopping_) return;
    // Out of descriptors, most likely: the next tick accepts again.
    accepting_ = !error;
    if (error) return;
    TakeIn(std::move(socket));
    Accept();
  });
}

void StoreService::TakeIn(stream_protocol::socket socket) {
  const auto uid = PeerUid(socket.native_handle());
  const bool room = uid && MakeRoomFor(*uid);
  auto session =
      std::make_shared<Session>(std::move(socket), this, ++accepted_, uid.value_or(uid_t(-1)));
  sessions_[session->number] = session;
  ++usage_[session->caller.uid].sessions;
  if (!uid) return session->Refuse(uid.error().message);
  if (!room)
    return session->Refuse("too many connections, and none of yours is idle: try again later");
  session->ReadHeader();
}

/// Each user has a share, and of all the user with the most connections gives way.
bool StoreService::MakeRoomFor(uid_t uid) {
  if (usage_[uid].sessions >= settings_.limits.sessions_of_user) return DropOldestIdle(uid);
  if (sessions_.size() < settings_.limits.sessions) return true;
  const auto most =
      std::ranges::max_element(usage_, {}, [](const auto& user) { return user.second.sessions; });
  return DropOldestIdle(most->first);
}

bool StoreService::DropOldestIdle(uid_t uid) {
  const auto oldest = std::ranges::find_if(sessions_, [&](const auto& entry) {
    return entry.second->caller.uid == uid && entry.second->IsIdle();
  });
  if (oldest == sessions_.end()) return false;
  Remove(SessionPtr(oldest->second));
  return true;
}

/// Counts a session's request as `bytes` long; false if that is too much.
bool StoreService::Reserve(Session& session, std::size_t bytes) {
  Usage& usage = usage_[session.caller.uid];
  const std::size_t others = bytes_ - session.reserved, own = usage.bytes - session.reserved;
  if (bytes > 0 &&
      (others + bytes > settings_.limits.bytes || own + bytes > settings_.limits.bytes_of_user))
    return false;
  bytes_ = others + bytes;
  usage.bytes = own + bytes;
  session.reserved = bytes;
  return true;
}

void StoreService::Understand(const SessionPtr& session, std::string text) {
  // The threads may still be at it when the service has ended.
  const auto answer = [&io = io_, session, metrics = metrics_, came = Clock::now()](
                          std::string_view request, const StoreAnswer& given) {
    metrics->Answered(request, std::holds_alternative<Refused>(given),
                      std::chrono::duration<double>(Clock::now() - came).count());
    asio::post(io, [session, given_text = AnswerText(given)] { session->Send(given_text); });
  };
  readers_.Add([&writer = writer_, session, answer,
                text = std::move(text)](const RequestReaders::Read& read) {
    auto request = ReadStoreRequest(text);
    if (!request) return answer("unreadable", Refused{request.error().message});
    const std::string_view name = NameOf(*request);
    if (!session->greeted) return answer(name, session->Greeted(*request));
    if (!Writes(*request)) return answer(name, read(session->caller, *request));
    writer.Add(session->caller, std::move(*request),
               [answer, name](const StoreAnswer& given) { answer(name, given); });
  });
}

void StoreService::PublishLevels() {
  if (settings_.metrics.empty() || Clock::now() < publish_at_) return;
  publish_at_ = Clock::now() + kPublishPeriod;
  const auto size = [](const std::string& path) {
    std::error_code error;
    const std::uintmax_t bytes = std::filesystem::file_size(path, error);
    return error ? 0 : bytes;
  };
  const std::string database = settings_.database.string();
  const auto published = PublishMetrics(
      settings_.metrics,
      metrics_->Text({sessions_.size(), usage_.size(), size(database), size(database + "-wal")}));
  // Once: the next attempts fail for the same reason.
  if (!published && std::exchange(metrics_told_, true) == false)
    settings_.log(fmt::format("metrics cannot be written: {}", published.error().message));
}

void StoreService::Tick() {
  tick_.expires_after(kTickPeriod);
  tick_.async_wait([this](const error_code& error) {
    if (error) return;
    const auto now = Clock::now();
    std::vector<SessionPtr> late;
    for (const auto& [number, session] : sessions_)
      if (session->until < now || (stopping_ && stop_by_ < now)) late.push_back(session);
    for (const SessionPtr& session : late) Remove(session);
    if (stopping_ && sessions_.empty()) return;
    if (!stopping_ && !std::exchange(accepting_, true)) Accept();
    PublishLevels();
    Tick();
  });
}

void StoreService::Remove(const SessionPtr& session) {
  Reserve(*session, 0);
  const auto user = usage_.find(session->caller.uid);
  if (--user->second.sessions == 0) usage_.erase(user);
  sessions_.erase(session->number);
  session->Drop();
  if (stopping_ && sessions_.empty()) tick_.cancel();
}

void StoreService::Stop() {
  if (std::exchange(stopping_, true)) return;
  stop_by_ = Clock::now() + kStopLimit;
  error_code ignored;
  acceptor_.close(ignored);
  std::vector<SessionPtr> waiting;
  for (const auto& [number, session] : sessions_)
    if (!session->HasRequest()) waiting.push_back(session);
  for (const SessionPtr& session : waiting) Remove(session);
  if (sessions_.empty()) tick_.cancel();
}

}  // namespace adaptive_train
