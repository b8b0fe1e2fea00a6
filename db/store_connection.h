// A client's connection to adaptive-traind.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>

#include "core/result.h"

namespace adaptive_train {

/// One connected unix socket. One thread. Errors are one line without the store's name.
class StoreConnection {
 public:
  using Clock = std::chrono::steady_clock;

  /// Connects to the socket at `path`, by `deadline`.
  static Result<StoreConnection> Open(const std::filesystem::path& path,
                                      Clock::time_point deadline);

  StoreConnection(StoreConnection&& other) noexcept;
  StoreConnection& operator=(StoreConnection&& other) noexcept;
  ~StoreConnection();

  /// Sends a message's text and returns that of the answer, by `deadline`. After an error the
  /// connection is of no use any more, and the request may have been done.
  Result<std::string> Exchange(const std::string& text, Clock::time_point deadline);

  /// True if the other side has closed the connection since the last answer, or said something
  /// unasked.
  bool Closed() const;

 private:
  explicit StoreConnection(int descriptor) : descriptor_(descriptor) {}
  Result<void> Send(std::string_view bytes, Clock::time_point deadline);
  Result<void> Receive(char* bytes, std::size_t size, Clock::time_point deadline);

  int descriptor_ = -1;
};

}  // namespace adaptive_train
