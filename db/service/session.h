// One client of adaptive-traind. For store_service.cc and session.cc.
#pragma once

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "db/sealed_frames.h"
#include "db/service/caller.h"
#include "db/service/introduction.h"
#include "db/service/store_service.h"
#include "db/store_message.h"

namespace adaptive_train {

inline constexpr const char* kNoRoom =
    "too many connections, and none of yours is idle: try again later";

/// A request, its answer, the next request. A session whose first request is refused is closed, and
/// so is one with another host that has lasted for ServiceLimits::age. While an answer is made,
/// `caller` and `greeted` belong to the thread that makes it; all else is the thread's that runs
/// `io`.
class StoreService::Session : public std::enable_shared_from_this<Session> {
 public:
  using Socket = boost::asio::generic::stream_protocol::socket;
  using Clock = std::chrono::steady_clock;
  enum class State { kNew, kIdle, kReceiving, kAnswering, kSending };

  Session(Socket socket, StoreService* service, std::uint64_t its_number, uid_t uid);

  /// Lets the client say who it is, and then ReadRequest().
  void Challenge();
  void ReadRequest();
  void Send(const std::string& text);
  /// Says why, and closes.
  void Refuse(const std::string& why);

  /// The answer to the first request. By a thread of the readers.
  StoreAnswer Greeted(const StoreRequest& first);

  void Identify(uid_t uid);
  /// Forgets the service and closes.
  void Drop();

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
  /// Calls `then` when all has been written; removes the session where that fails.
  template <class Then>
  void Write(std::string frame, Then then);
  /// Calls `then` with the size of the next frame.
  template <class Then>
  void ReadHeader(Then then);
  /// Calls `then` when text_ has the rest of the frame.
  template <class Then>
  void ReadText(std::size_t size, Then then);
  void TakeCredential(std::size_t size);
  void Introduced(const Result<Introduction>& client);
  void TakeRequest(std::size_t size);
  void AwaitTurn();
  void Understand();
  void Sent();

  Socket socket_;
  boost::asio::steady_timer turn_;  // of the user's request
  StoreService* service_;
  std::string nonce_;  // of the challenge
  std::optional<SealedFrames> sealed_;
  Clock::time_point ends_ = Clock::time_point::max();
  char header_[kFrameHeaderBytes];
  std::string text_, out_;
  bool last_ = false;  // it is closed after the answer
};

}  // namespace adaptive_train
