#include "db/service/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <utility>

#include "core/token_proof.h"
#include "db/launcher_process.h"
#include "db/service/answer_request.h"

namespace adaptive_train {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using store_answer::Refused;

/// Not counted: small requests and refusals must find room beside large ones.
constexpr std::size_t kShort = 4096;
/// In place of an answer that its user has no room for.
const std::string kTooMuchAtOnce =
    ToText(Refused{"too many large answers at once: take those that are there first"});

/// munge's credentials of an offer have some 400.
constexpr std::size_t kMostCredentialBytes = 4096;

}  // namespace

StoreService::Session::Session(Socket socket, StoreService* service, std::uint64_t its_number,
                               uid_t uid)
    : number(its_number), socket_(std::move(socket)), turn_(service->io_), service_(service) {
  Identify(uid);
  until = Clock::now() + Limits().hello;
}

void StoreService::Session::Identify(uid_t uid) {
  caller.uid = uid;
  const Rights& rights = service_->settings_.rights;
  caller.is_operator = rights.operators.contains(uid);
  const auto accounts = rights.coordinators.find(uid);
  caller.accounts =
      accounts == rights.coordinators.end() ? std::vector<std::string>() : accounts->second;
}

template <class Then>
void StoreService::Session::Write(std::string frame, Then then) {
  out_ = std::move(frame);
  asio::async_write(socket_, asio::buffer(out_),
                    [self = shared_from_this(), then](const error_code& error, std::size_t) {
                      if (self->service_ == nullptr) return;
                      self->out_ = {};
                      if (error) return self->service_->Remove(self);
                      then();
                    });
}

template <class Then>
void StoreService::Session::ReadHeader(Then then) {
  asio::async_read(socket_, asio::buffer(header_),
                   [self = shared_from_this(), then](const error_code& error, std::size_t) {
                     if (self->service_ == nullptr) return;
                     if (error) return self->service_->Remove(self);
                     then(FrameSize(self->header_));
                   });
}

template <class Then>
void StoreService::Session::ReadText(std::size_t size, Then then) {
  text_.resize(size);
  asio::async_read(socket_, asio::buffer(text_),
                   [self = shared_from_this(), then](const error_code& error, std::size_t) {
                     if (self->service_ == nullptr) return;
                     if (error) return self->service_->Remove(self);
                     then();
                   });
}

void StoreService::Session::Challenge() {
  nonce_ = NewNonce();
  Write(FrameOf(ChallengeOf(nonce_)),
        [this] { ReadHeader([this](std::size_t size) { TakeCredential(size); }); });
}

void StoreService::Session::TakeCredential(std::size_t size) {
  if (size > kMostCredentialBytes) return Refuse("a credential is not so long");
  ReadText(size, [this] {
    if (!text_.starts_with("MUNGE:")) return Refuse("this is no credential of munge");
    state = State::kAnswering;
    // munged may take its time, and the service may end before.
    asio::post(service_->credentials_,
               [self = shared_from_this(), &io = service_->io_, name = *service_->settings_.tcp,
                nonce = nonce_, credential = std::exchange(text_, {})] {
                 auto client = Introduce(credential, nonce, name);
                 asio::post(io, [self, client = std::move(client)] { self->Introduced(client); });
               });
  });
}

void StoreService::Session::Introduced(const Result<Introduction>& client) {
  if (service_ == nullptr) return;
  if (!client) return Refuse(client.error().message);
  if (!service_->Admit(*this, client->uid)) return Refuse(kNoRoom);
  ends_ = Clock::now() + Limits().age;
  Write(FrameOf(client->acceptance), [this, offer = client->offer] {
    state = State::kNew;
    sealed_.emplace(offer, SealedFrames::End::kService);
    ReadRequest();
  });
}

void StoreService::Session::ReadRequest() {
  ReadHeader([this](std::size_t size) { TakeRequest(size); });
}

void StoreService::Session::TakeRequest(std::size_t size) {
  Identify(caller.uid);  // rights may have changed
  const std::size_t longest = kMaxFrameBytes + (sealed_ ? SealedFrames::kTagBytes : 0);
  if (size > longest)
    return Refuse(
        fmt::format("a request of {} bytes; at most {} are allowed", size, kMaxFrameBytes));
  if (size > kShort && !service_->Reserve(*this, size))
    return Refuse("too many large requests at once: send the next when one is answered");
  if (!service_->budgets_.Spend(caller.uid, size, Clock::now()))
    return Refuse(
        fmt::format("you have sent {} MiB of requests within a day: more is taken when it is "
                    "over (adaptive-traind's --mib-a-day)",
                    Limits().of_user.bytes_of_day >> 20));
  if (state == State::kIdle) until = Clock::now() + Limits().frame;
  state = State::kReceiving;
  ReadText(size, [this] { AwaitTurn(); });
}

void StoreService::Session::AwaitTurn() {
  const auto wait = service_->budgets_.Wait(caller.uid, Clock::now());
  if (wait == Clock::duration(0)) return Understand();
  state = State::kAnswering;
  until = Clock::time_point::max();
  turn_.expires_after(wait);
  turn_.async_wait([self = shared_from_this()](const error_code& error) {
    if (self->service_ != nullptr && !error) self->Understand();
  });
}

void StoreService::Session::Understand() {
  std::string text = std::exchange(text_, {});
  if (sealed_) {
    auto opened = sealed_->Open(text);
    if (!opened) return service_->Remove(shared_from_this());
    text = std::move(*opened);
  }
  state = State::kAnswering;
  until = Clock::time_point::max();
  service_->Understand(shared_from_this(), std::move(text));
}

void StoreService::Session::Send(const std::string& text) {
  if (service_ == nullptr) return;
  state = State::kSending;
  until = Clock::now() + Limits().frame;
  const bool room =
      text.size() <= kShort || service_->Reserve(*this, std::max(reserved, text.size()));
  const std::string& said = room ? text : kTooMuchAtOnce;
  Write(FrameOf(sealed_ ? sealed_->Seal(said) : said), [this] { Sent(); });
}

void StoreService::Session::Sent() {
  service_->Reserve(*this, 0);
  if (last_ || !greeted || service_->stopping_ || Clock::now() > ends_)
    return service_->Remove(shared_from_this());
  state = State::kIdle;
  until = std::min(Clock::now() + Limits().idle, ends_);
  ReadRequest();
}

void StoreService::Session::Refuse(const std::string& why) {
  last_ = true;
  Send(ToText(Refused{why}));
}

StoreAnswer StoreService::Session::Greeted(const StoreRequest& first) {
  const auto* hello = std::get_if<store_request::Hello>(&first);
  if (hello == nullptr) return Refused{"a connection begins with hello"};
  caller.user = NameOfUser(caller.uid);
  StoreAnswer answer = Greet(*hello);
  greeted = std::holds_alternative<store_answer::Welcome>(answer);
  return answer;
}

void StoreService::Session::Drop() {
  service_ = nullptr;
  turn_.cancel();
  error_code ignored;
  socket_.close(ignored);
}

}  // namespace adaptive_train
