// A client's connection to adaptive-traind.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "core/result.h"
#include "db/sealed_frames.h"
#include "db/store_location.h"

namespace adaptive_train {

/// One connected socket. To another host, what is said is sealed (db/session_offer.h). One thread.
/// Errors are one line without the store's name.
class StoreConnection {
 public:
  using Clock = std::chrono::steady_clock;

  /// Connects to the service of `location`, and makes sure that it is the one, by `deadline`.
  static Result<StoreConnection> Open(const StoreLocation& location, Clock::time_point deadline);

  StoreConnection(StoreConnection&& other) noexcept;
  StoreConnection& operator=(StoreConnection&& other) noexcept;
  ~StoreConnection();

  /// Sends a message's text and returns that of the answer, by `deadline`. After an error the
  /// connection is of no use any more, and the request may have been done.
  Result<std::string> Exchange(const std::string& text, Clock::time_point deadline);

  /// True if the other side has closed the connection since the last answer, or said something
  /// unasked, or if the session is about to end.
  bool Closed() const;

 private:
  explicit StoreConnection(int descriptor) : descriptor_(descriptor) {}
  Result<void> Introduce(const StoreLocation& location, Clock::time_point deadline);
  Result<std::string> ReceiveFrame(Clock::time_point deadline);
  Result<void> Send(std::string_view bytes, Clock::time_point deadline);
  Result<void> Receive(char* bytes, std::size_t size, Clock::time_point deadline);

  int descriptor_ = -1;
  std::optional<SealedFrames> sealed_;
  Clock::time_point renew_at_ = Clock::time_point::max();
};

}  // namespace adaptive_train
