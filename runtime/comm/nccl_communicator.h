// One rank's end of a group of like GPUs whose collectives NCCL carries.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "core/member_report.h"
#include "core/result.h"
#include "kernels/scalar.h"
#include "runtime/comm/nccl_executor.h"
#include "runtime/comm/nccl_library.h"
#include "runtime/comm/request.h"

namespace adaptive_train {

/// A place in a stream: tells whether the stream has got there, or why it never will.
using StreamPoint = std::function<Result<bool>()>;

/// What member 0 sends to all before they join, as bytes over any other channel.
struct NcclInvitation {
  nccl::ncclUniqueId id{};
  std::string version;  // of its NCCL
};
Result<NcclInvitation> Invite(const nccl::Library& library);

/// The GPU's stream into which a communicator puts its work, and which nothing else of NCCL uses.
struct NcclStream {
  nccl::cudaStream_t handle = nullptr;
  /// The place behind all that was put in so far. Called on the executor's thread, as the result is.
  std::function<StreamPoint()> mark;
};

/// Memory of the rank's GPU.
struct NcclArray {
  void* data = nullptr;
  std::size_t count = 0;  // elements
  nccl::ncclDataType_t type = nccl::ncclFloat32;
  std::size_t element_bytes = sizeof(float);

  NcclArray() = default;
  template <class T>
  NcclArray(std::span<T> array)  // NOLINT: a span is what callers have
      : data(array.data()), count(array.size()), type(TypeOf<T>()), element_bytes(sizeof(T)) {}

 private:
  template <class T>
  static constexpr nccl::ncclDataType_t TypeOf() {
    if constexpr (std::is_same_v<T, double>) return nccl::ncclFloat64;
    if constexpr (std::is_same_v<T, kernels::BFloat16>) return nccl::ncclBfloat16;
    if constexpr (std::is_same_v<T, kernels::Float16>) return nccl::ncclFloat16;
    static_assert(std::is_same_v<T, float> || std::is_same_v<T, double> ||
                  std::is_same_v<T, kernels::BFloat16> || std::is_same_v<T, kernels::Float16>);
    return nccl::ncclFloat32;
  }
};

/// Who is in a group, the same on all members.
struct NcclPlace {
  std::string name;          // "data group"
  std::vector<int> members;  // ranks of the job, by number; this rank among them
  int number = 0;            // this rank's among them
};

struct NcclDeadlines {
  /// While anything is under way: from one sign of progress (an operation taken or ended) to the
  /// next. It must cover the longest computation of a peer.
  std::chrono::milliseconds progress = std::chrono::minutes(15);
  /// For an abort or the end of a communicator. Less than what a Request grants a cancelled
  /// operation.
  std::chrono::milliseconds end = std::chrono::seconds(3);
};

/// One transfer of an exchange.
struct NcclTransfer {
  int member = 0;
  bool is_send = false;
  NcclArray data;
};

class NcclMember;

/// Operations return a Request at once. They run in the order of the calls, which must be the same
/// on all members. NCCL cannot end one operation: a cancelled or late one, and any error, abort the
/// communicator, and with it all that it has under way. An abort has a thread and a deadline of its
/// own, since it may hang (NVIDIA/nccl#1777). After that deadline NCCL may still write to the
/// buffers: Report().left_behind says so, and the process must end without giving them back.
/// Threads: the rank's main thread calls; Report and SetDeadlines from any. The object must outlive
/// its Requests; library and executor must outlive it.
class NcclCommunicator {
 public:
  NcclCommunicator(const nccl::Library& library, NcclExecutor& executor, NcclStream stream,
                   NcclPlace place, NcclDeadlines deadlines = {});
  /// Aborts what has not ended. Blocks for deadlines.end at most.
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  /// Joins the others. The invitation is member 0's. Over when all are in. Another version of NCCL
  /// than member 0's is an error at once.
  Request Join(const NcclInvitation& invitation);
  /// Makes `child`, whose members are some of this group's and among them this rank. All members
  /// call, those that are in no new group with nullptr. Children of one call have no member in
  /// common. `child` must outlive the Request.
  Request Split(NcclCommunicator* child);

  /// Element i becomes the sum of all members' elements i.
  Request AllReduce(NcclArray data);
  /// `data` has as many equal parts as there are members. Part r of every member becomes that of
  /// member r.
  Request AllGather(NcclArray data);
  /// Part r of member r becomes the sum of all members' parts r; the others are left undefined.
  Request ReduceScatter(NcclArray data);
  /// All transfers at the same time: members need no order among them, and no deadlock comes of it.
  /// Only the members that it names take part.
  Request Exchange(std::vector<NcclTransfer> transfers);
  Request Send(int member, NcclArray data) { return Exchange({{member, true, data}}); }
  Request Receive(int member, NcclArray data) { return Exchange({{member, false, data}}); }

  /// Ends the communicator once all members have called it and what is under way has ended.
  Request Finish();

  void SetDeadlines(NcclDeadlines deadlines);
  MemberReport Report() const;

 private:
  struct Call;
  Request Launch(const char* what, Call call);

  NcclExecutor& executor_;
  const std::shared_ptr<NcclMember> member_;
  std::map<std::string, int> started_;  // operations by what they are
};

}  // namespace adaptive_train
