// A failure that ends the rank: device, transport, a lost peer, a full disk. It may be thrown
// anywhere on the rank's main thread. worker.cc catches it, reports it and exits with a documented
// code.
#pragma once

#include <exception>
#include <string>
#include <type_traits>
#include <utility>

#include "core/rank_exit.h"
#include "core/result.h"

namespace adaptive_train {

class FatalError : public std::exception {
 public:
  static constexpr int kNoPeer = -1;

  FatalError(RankExit code, std::string operation, int peer, std::string cause)
      : code_(code),
        operation_(std::move(operation)),
        peer_(peer),
        cause_(std::move(cause)),
        what_(operation_ + ": " + cause_) {}

  RankExit Code() const { return code_; }
  const std::string& Operation() const { return operation_; }
  int Peer() const { return peer_; }  // rank, or kNoPeer
  const std::string& Cause() const { return cause_; }
  const char* what() const noexcept override { return what_.c_str(); }

 private:
  RankExit code_;
  std::string operation_;
  int peer_;
  std::string cause_;
  std::string what_;
};

/// The result of an operation whose failure ends the rank.
template <class T>
T OrThrow(Result<T> result, RankExit code, const char* operation) {
  if (!result) throw FatalError(code, operation, FatalError::kNoPeer, result.error().message);
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

}  // namespace adaptive_train
