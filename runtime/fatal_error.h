// A failure that ends the rank: device, transport, a lost peer, a full disk. It may be thrown
// anywhere on the rank's main thread. worker.cc catches it, reports it and exits with a documented
// code.
#pragma once

#include <exception>
#include <string>
#include <type_traits>
#include <utility>

#include "core/failure_kind.h"
#include "core/rank_exit.h"
#include "core/result.h"

namespace adaptive_train {

class FatalError : public std::exception {
 public:
  static constexpr int kNoPeer = -1;

  /// Without a kind it is what `code` says.
  FatalError(RankExit code, std::string operation, int peer, std::string cause)
      : FatalError(code, KindOf(code), std::move(operation), peer, std::move(cause)) {}
  FatalError(RankExit code, FailureKind kind, std::string operation, int peer, std::string cause)
      : code_(code),
        kind_(kind),
        operation_(std::move(operation)),
        peer_(peer),
        cause_(std::move(cause)),
        what_(operation_ + ": " + cause_) {}

  RankExit Code() const { return code_; }
  FailureKind Kind() const { return kind_; }
  const std::string& Operation() const { return operation_; }
  int Peer() const { return peer_; }  // rank, or kNoPeer
  const std::string& Cause() const { return cause_; }
  const char* what() const noexcept override { return what_.c_str(); }

 private:
  RankExit code_;
  FailureKind kind_;
  std::string operation_;
  int peer_;
  std::string cause_;
  std::string what_;
};

/// What an error of a rank is about. A checkpoint that the system would have let it read, and that
/// the rank refused, does not fit the run.
inline FailureKind KindOf(RankExit code, const Error& error) {
  if (code == RankExit::kCheckpoint && error.system_error == 0) return FailureKind::kConfiguration;
  return KindOf(code, error.system_error);
}

/// The result of an operation whose failure ends the rank.
template <class T>
T OrThrow(Result<T> result, RankExit code, const char* operation) {
  if (!result)
    throw FatalError(code, KindOf(code, result.error()), operation, FatalError::kNoPeer,
                     result.error().message);
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

}  // namespace adaptive_train
