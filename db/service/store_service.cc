#include "db/service/store_service.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "core/file_io.h"
#include "db/service/answer_request.h"
#include "db/service/caller.h"
#include "db/service/session.h"
#include "db/store_location.h"
#include "db/store_message.h"

namespace adaptive_train {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using asio::local::stream_protocol;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;
using store_answer::Refused;

constexpr std::chrono::milliseconds kTickPeriod{500};
constexpr std::chrono::seconds kStopLimit{10}, kPublishPeriod{15};
/// A munged answers in a millisecond. One that hangs holds them, and nobody else.
constexpr std::size_t kMungeThreads = 4;
/// Stands for clients whose user is not known. credentials(7): -1 is no user's.
constexpr uid_t kNobodyYet = static_cast<uid_t>(-1);

tl::unexpected<Error> FailListen(const std::filesystem::path& socket, const std::string& why) {
  return Fail(fmt::format("socket {}: {}", socket.string(), why), ExitCode::kStore);
}

}  // namespace

StoreService::StoreService(asio::io_context& io, Settings settings, RequestReaders& readers,
                           RequestWriter& writer)
    : io_(io),
      local_(io),
      port_(io),
      tick_(io),
      settings_(std::move(settings)),
      readers_(readers),
      writer_(writer),
      budgets_(settings_.limits.of_user),
      credentials_(kMungeThreads) {}

Result<std::unique_ptr<StoreService>> StoreService::Listen(asio::io_context& io, Settings settings,
                                                           RequestReaders& readers,
                                                           RequestWriter& writer) {
  std::unique_ptr<StoreService> self(new StoreService(io, std::move(settings), readers, writer));
  if (auto bound = self->BindLocally(); !bound) return tl::unexpected(bound.error());
  if (auto bound = self->BindToPort(); !bound) return tl::unexpected(bound.error());
  self->Accept(self->local_);
  if (self->settings_.tcp) self->Accept(self->port_);
  self->PublishLevels();
  self->Tick();
  return self;
}

StoreService::~StoreService() {
  for (auto& [number, session] : sessions_) session->Drop();
  if (bound_) ::unlink(settings_.socket.c_str());
}

Result<void> StoreService::BindLocally() {
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
  stream_protocol::acceptor& acceptor = local_.acceptor;
  acceptor.open(stream_protocol(), error);
  if (!error) acceptor.bind(endpoint, error);
  bound_ = !error;
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) return FailListen(path, "cannot listen: " + error.message());
  if (::chmod(path.c_str(), 0666) != 0)
    return FailListen(path, fmt::format("cannot be opened to all users: {}", std::strerror(errno)));
  return {};
}

Result<void> StoreService::BindToPort() {
  if (!settings_.tcp) return {};
  const auto place = ParseHostAndPort(settings_.tcp->address);
  if (!place)
    return Fail(fmt::format("--tcp: {} is not HOST:PORT", Printable(settings_.tcp->address, 100)));
  const auto number = static_cast<std::uint16_t>(std::stoul(place->port));
  error_code error;
  const asio::ip::address address = settings_.tcp_listen.empty()
                                        ? asio::ip::address(asio::ip::address_v6::any())
                                        : asio::ip::make_address(settings_.tcp_listen, error);
  if (error)
    return Fail(
        fmt::format("--tcp-listen: {} is no address of this host: allowed are those that "
                    "`ip address` shows",
                    Printable(settings_.tcp_listen, 100)));
  tcp::endpoint endpoint(address, number);
  tcp::acceptor& acceptor = port_.acceptor;
  acceptor.open(endpoint.protocol(), error);
  if (error == asio::error::address_family_not_supported && settings_.tcp_listen.empty()) {
    endpoint = tcp::endpoint(tcp::v4(), number);
    acceptor.open(endpoint.protocol(), error);
  }
  error_code ignored;
  // Where it listens at all addresses of IPv6, those of IPv4 are meant, too.
  acceptor.set_option(asio::ip::v6_only(false), ignored);
  acceptor.set_option(asio::socket_base::reuse_address(true), ignored);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error)
    return Fail(fmt::format("port {}: cannot listen: {}", place->port, error.message()),
                ExitCode::kStore);
  return {};
}

template <class Protocol>
void StoreService::Accept(Door<Protocol>& door) {
  door.acceptor.async_accept(
      [this, &door](const error_code& error, typename Protocol::socket socket) {
        if (error == asio::error::operation_aborted || stopping_) return;
        // Out of descriptors, most likely: the next tick accepts again.
        door.accepting = !error;
        if (error) return;
        TakeIn(std::move(socket));
        Accept(door);
      });
}

void StoreService::AcceptAgain() {
  if (stopping_) return;
  if (!std::exchange(local_.accepting, true)) Accept(local_);
  if (!std::exchange(port_.accepting, true)) Accept(port_);
}

StoreService::SessionPtr StoreService::NewSession(asio::generic::stream_protocol::socket socket,
                                                  uid_t uid) {
  auto session = std::make_shared<Session>(std::move(socket), this, ++accepted_, uid);
  sessions_[session->number] = session;
  ++usage_[uid].sessions;
  return session;
}

void StoreService::TakeIn(stream_protocol::socket socket) {
  const auto uid = PeerUid(socket.native_handle());
  const bool room = uid && MakeRoomFor(*uid);
  const SessionPtr session = NewSession(std::move(socket), uid.value_or(kNobodyYet));
  if (!uid) return session->Refuse(uid.error().message);
  if (!room) return session->Refuse(kNoRoom);
  session->ReadRequest();
}

/// Its user is known when munged has vouched for him.
void StoreService::TakeIn(tcp::socket socket) {
  error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  const bool room = MakeRoomFor(kNobodyYet);
  const SessionPtr session = NewSession(std::move(socket), kNobodyYet);
  if (!room) return session->Refuse(kNoRoom);
  session->Challenge();
}

bool StoreService::Admit(Session& session, uid_t uid) {
  if (!HasShareLeft(uid)) return false;
  LeaveUser(session.caller.uid);
  session.Identify(uid);
  ++usage_[uid].sessions;
  return true;
}

void StoreService::LeaveUser(uid_t uid) {
  const auto user = usage_.find(uid);
  if (--user->second.sessions == 0) usage_.erase(user);
}

/// Each user has a share, in which the oldest idle connection gives way.
bool StoreService::HasShareLeft(uid_t uid) {
  const auto user = usage_.find(uid);
  return user == usage_.end() || user->second.sessions < settings_.limits.sessions_of_user ||
         DropOldestIdle(uid);
}

/// Of all, the user with the most connections gives way.
bool StoreService::MakeRoomFor(uid_t uid) {
  if (!HasShareLeft(uid)) return false;
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
  readers_.Add(session->caller.uid, [&writer = writer_, session, answer, ask = settings_.ask_slurm,
                                     text = std::move(text)](const RequestReaders::Read& read) {
    auto request = ReadStoreRequest(text);
    if (!request) return answer("unreadable", Refused{request.error().message});
    const std::string_view name = NameOf(*request);
    if (!session->greeted) return answer(name, session->Greeted(*request));
    if (!Writes(*request)) return answer(name, read(session->caller, *request));
    PrepareRequest(*request, ask ? Counted::kSeenBySlurm : Counted::kAll);
    auto questions = ask ? QuestionsIn(*request) : std::vector<SlurmQuestion>();
    writer.Add(session->caller, std::move(*request),
               [answer, name, ask, user = session->caller.uid,
                questions = std::move(questions)](const StoreAnswer& given) {
                 answer(name, given);
                 if (!questions.empty() && !std::holds_alternative<Refused>(given))
                   ask(user, questions);
               });
  });
}

void StoreService::Renew(Rights rights, const UserBudgets::Limits& of_user) {
  settings_.rights = std::move(rights);
  settings_.limits.of_user = of_user;
  budgets_.Renew(of_user);
}

std::string StoreService::Metrics(MetricsFormat format) const {
  const auto size = [](const std::string& path) {
    std::error_code error;
    const std::uintmax_t bytes = std::filesystem::file_size(path, error);
    return error ? 0 : bytes;
  };
  const std::string database = settings_.database.string();
  return metrics_->Text({sessions_.size(), usage_.size(), size(database), size(database + "-wal")},
                        format);
}

void StoreService::PublishLevels() {
  if (settings_.metrics.empty() || Clock::now() < publish_at_) return;
  publish_at_ = Clock::now() + kPublishPeriod;
  const auto published = PublishMetrics(settings_.metrics, Metrics(MetricsFormat::kPrometheus));
  // Once: the next attempts fail for the same reason.
  if (!published && std::exchange(metrics_told_, true) == false)
    settings_.log(
        {LOG_WARNING, fmt::format("metrics cannot be written: {}", published.error().message)});
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
    AcceptAgain();
    budgets_.Forget(now);
    PublishLevels();
    Tick();
  });
}

void StoreService::Remove(const SessionPtr& session) {
  Reserve(*session, 0);
  LeaveUser(session->caller.uid);
  sessions_.erase(session->number);
  session->Drop();
  if (stopping_ && sessions_.empty()) tick_.cancel();
}

void StoreService::Stop() {
  if (std::exchange(stopping_, true)) return;
  stop_by_ = Clock::now() + kStopLimit;
  error_code ignored;
  local_.acceptor.close(ignored);
  port_.acceptor.close(ignored);
  std::vector<SessionPtr> waiting;
  for (const auto& [number, session] : sessions_)
    if (!session->HasRequest()) waiting.push_back(session);
  for (const SessionPtr& session : waiting) Remove(session);
  if (sessions_.empty()) tick_.cancel();
}

}  // namespace adaptive_train
