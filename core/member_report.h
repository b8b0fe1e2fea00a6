// What a rank says of its communicator, and which rank failed first by what all of them say.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace adaptive_train {

/// How an operation ended that did not end well, as its own rank saw it.
enum class MemberFault : std::uint8_t {
  kNone,
  kOwn,   // the library or the device failed on this rank
  kPeer,  // the library says that another rank failed
  kLate,  // nothing moved until the deadline
};

/// One member of a group whose collectives a library carries. Members take part in the same
/// collectives in the same order, so those who took part in fewer hold up the others.
struct MemberReport {
  int rank = -1;                 // of the job
  std::string version;           // of the library; empty: it could not be loaded
  std::int64_t taken = 0;        // operations that the library has taken
  std::int64_t collectives = 0;  // those of them in which all members take part
  MemberFault fault = MemberFault::kNone;
  std::string operation;   // that failed: "all-reduce 3 of the data group"; or empty
  bool untaken = false;    // the library had not taken that one
  std::vector<int> peers;  // ranks without which it could not end, if it is not a collective
  std::string cause;
  bool left_behind = false;  // a thread is stuck in the library: the rank must end
};

/// Who failed first, and what shows it.
struct FirstFailure {
  int rank = -1;
  std::string why;  // one line without the rank
};

/// By the reports of the members that still speak, at the end. Signs count in this order. The first
/// three are a version that few have, a failure of the rank's own, and no report at all. Then come
/// fewer collectives than others, an operation that the library had not taken, and being waited for
/// without waiting. None: no member stands out, as when all wait in the same operation.
std::optional<FirstFailure> FirstToFail(std::span<const int> members,
                                        std::span<const MemberReport> reports);

}  // namespace adaptive_train
