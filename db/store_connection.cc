#include "db/store_connection.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "core/file_io.h"
#include "core/token_proof.h"
#include "db/in_time.h"
#include "db/munge.h"
#include "db/session_offer.h"
#include "db/store_message.h"
#include "db/store_socket.h"

namespace adaptive_train {
namespace {

using Clock = StoreConnection::Clock;

/// unix(7) says EPIPE; by TCP, what was not read makes it a reset.
bool ClosedBy(const Error& error) {
  return error.system_error == EPIPE || error.system_error == ECONNRESET;
}

bool WouldBlock() { return errno == EAGAIN || errno == EWOULDBLOCK; }

/// The credential of a service, or why it gives none, as a frame that is not sealed.
Result<std::string> CredentialIn(const std::string& text) {
  if (text.starts_with("MUNGE:")) return text;
  const auto answer = ReadStoreAnswer(text);
  const auto* refused = answer ? std::get_if<store_answer::Refused>(&*answer) : nullptr;
  return Fail(refused != nullptr ? Printable(refused->why, 1000)
                                 : "what answers does not introduce itself as adaptive-traind does",
              ExitCode::kStore);
}

/// Whether the service has accepted the offer, and is who it must be.
Result<void> CheckAcceptance(const MungeText& said, const SessionOffer& offer, uid_t service) {
  if (said.writer != service)
    return Fail(
        fmt::format("what answers belongs to uid {}, and adaptive-traind to {} by store_uid",
                    said.writer, service),
        ExitCode::kStore);
  if (said.text != AcceptanceOf(offer))
    return Fail("what answers has accepted another session than this one", ExitCode::kStore);
  return {};
}

}  // namespace

Result<StoreConnection> StoreConnection::Open(const StoreLocation& location,
                                              Clock::time_point deadline) {
  const auto descriptor = ConnectTo(location, deadline);
  if (!descriptor) return tl::unexpected(descriptor.error());
  StoreConnection connection(*descriptor);
  if (location.kind == StoreLocation::Kind::kRemoteService) {
    if (auto known = connection.Introduce(location, deadline); !known)
      return tl::unexpected(known.error());
  }
  return connection;
}

/// Each side learns from munged who the other is, and both have a key.
Result<void> StoreConnection::Introduce(const StoreLocation& location, Clock::time_point deadline) {
  const auto challenge = ReceiveFrame(deadline);
  if (!challenge) return tl::unexpected(challenge.error());
  const auto nonce = ReadChallenge(*challenge);
  if (!nonce) {
    const auto why = CredentialIn(*challenge);  // too many connections, for example
    return tl::unexpected(why ? nonce.error() : why.error());
  }
  const SessionOffer offer{location.address, *nonce, NewNonce(), NewNonce()};
  const auto made = InTime<Result<std::string>>(
      deadline, [text = ToText(offer), to = location.service, socket = location.munge_socket] {
        return MungeEncode(text, to, socket);
      });
  if (!made) return Fail("munged does not answer in time", ExitCode::kStore);
  if (!*made) return tl::unexpected(made->error());
  if (auto sent = Send(FrameOf(**made), deadline); !sent) return sent;
  const auto answer = ReceiveFrame(deadline).and_then(CredentialIn);
  if (!answer) return tl::unexpected(answer.error());
  const auto said =
      InTime<Result<MungeText>>(deadline, [credential = *answer, socket = location.munge_socket] {
        return MungeDecode(credential, socket);
      });
  if (!said) return Fail("munged does not answer in time", ExitCode::kStore);
  if (!*said) return tl::unexpected(said->error());
  if (auto right = CheckAcceptance(**said, offer, location.service); !right) return right;
  sealed_.emplace(offer, SealedFrames::End::kClient);
  renew_at_ = Clock::now() + kSessionRenewal;
  return {};
}

StoreConnection::StoreConnection(StoreConnection&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      sealed_(std::move(other.sealed_)),
      renew_at_(other.renew_at_) {}

StoreConnection& StoreConnection::operator=(StoreConnection&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(sealed_, other.sealed_);
  std::swap(renew_at_, other.renew_at_);
  return *this;
}

StoreConnection::~StoreConnection() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<std::string> StoreConnection::Exchange(const std::string& text, Clock::time_point deadline) {
  if (text.size() > kMaxFrameBytes)
    return Fail(fmt::format("a record of {} MiB is longer than the {} that adaptive-traind takes",
                            text.size() >> 20, kMaxFrameBytes >> 20),
                ExitCode::kStore);
  // Who closes before he has read the request may have said why.
  const std::string frame = FrameOf(sealed_ ? sealed_->Seal(text) : text);
  if (auto sent = Send(frame, deadline); !sent && !ClosedBy(sent.error()))
    return tl::unexpected(sent.error());
  auto answer = ReceiveFrame(deadline);
  if (!answer || !sealed_) return answer;
  return sealed_->Open(*answer);
}

Result<std::string> StoreConnection::ReceiveFrame(Clock::time_point deadline) {
  char header[kFrameHeaderBytes];
  if (auto got = Receive(header, sizeof header, deadline); !got) return tl::unexpected(got.error());
  const std::size_t size = FrameSize(header);
  if (size > kMaxFrameBytes + SealedFrames::kTagBytes)
    return Fail("what answers is no adaptive-traind: its frame is too long", ExitCode::kStore);
  std::string text(size, '\0');
  if (auto got = Receive(text.data(), size, deadline); !got) return tl::unexpected(got.error());
  return text;
}

bool StoreConnection::Closed() const {
  if (Clock::now() > renew_at_) return true;
  char byte = 0;
  return ::recv(descriptor_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || !WouldBlock();
}

Result<void> StoreConnection::Send(std::string_view bytes, Clock::time_point deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    } else if (WouldBlock()) {
      if (!AwaitSocket(descriptor_, POLLOUT, deadline)) return FailLate();
    } else if (errno != EINTR) {
      return FailConnection("the connection is lost");
    }
  }
  return {};
}

Result<void> StoreConnection::Receive(char* bytes, std::size_t size, Clock::time_point deadline) {
  while (size > 0) {
    if (!AwaitSocket(descriptor_, POLLIN, deadline)) return FailLate();
    const ssize_t got = ::recv(descriptor_, bytes, size, 0);
    if (got == 0)
      return Fail("the connection is lost: adaptive-traind closed it", ExitCode::kStore);
    if (got < 0 && (WouldBlock() || errno == EINTR)) continue;
    if (got < 0) return FailConnection("the connection is lost");
    bytes += got;
    size -= static_cast<std::size_t>(got);
  }
  return {};
}

}  // namespace adaptive_train
