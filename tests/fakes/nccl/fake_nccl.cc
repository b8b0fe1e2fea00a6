#include "tests/fakes/nccl/fake_nccl.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace adaptive_train::fake_nccl {
namespace {

using nccl::ncclComm_t;
using nccl::ncclResult_t;

struct Stream {
  std::int64_t enqueued = 0, done = 0;
};

struct Work {
  enum class What { kAllReduce, kAllGather, kReduceScatter, kSend, kReceive } what;
  const void* from;
  void* to;
  std::size_t count;
  int type;
  int peer;                  // of transfers
  std::int64_t number = -1;  // of collectives
  bool done = false;

  bool IsCollective() const { return what != What::kSend && what != What::kReceive; }
};

/// What one call, or one group of calls, has put into the stream.
struct Batch {
  std::vector<Work> works;
  Stream* stream;
};

/// The split of a communicator in which its members meet.
struct SplitRound {
  struct Entry {
    int color, key;
    ncclComm_t* slot;
  };
  std::map<int, Entry> entries;  // by member
  bool over = false;
};

struct Clique {
  std::vector<ncclComm_t> comms;  // nullptr: not in yet, or gone
  int joined = 0, finalized = 0;
  std::shared_ptr<const Script> script;
  std::shared_ptr<SplitRound> round = std::make_shared<SplitRound>();
};

std::mutex mutex;  // guards everything here
std::condition_variable changed;
bool released = false;
int hanging = 0;
std::uint64_t next_id = 1;
std::map<std::uint64_t, std::shared_ptr<Clique>> cliques;
std::map<std::uint64_t, std::shared_ptr<const Script>> scripts;
thread_local int version = 22809;
thread_local int group_depth = 0;
thread_local ncclComm_t group_comm = nullptr;
thread_local Batch group_batch;

std::uint64_t NumberOf(const nccl::ncclUniqueId& id) {
  std::uint64_t number = 0;
  std::memcpy(&number, id.internal, sizeof number);
  return number;
}

std::size_t BytesOf(int type) {
  return type == nccl::ncclFloat64 ? 8 : type == nccl::ncclFloat32 ? 4 : 2;
}

}  // namespace
}  // namespace adaptive_train::fake_nccl

/// A communicator. In progress: until it has been asked `settle` times and `then` was done, and as
/// long as `until` is false.
struct adaptive_train::nccl::ncclComm {
  std::shared_ptr<fake_nccl::Clique> clique;
  int rank = 0;
  int origin = 0;  // rank in the communicator that was not split
  ncclResult_t error = ncclSuccess;
  int settle = 0;  // < 0: for ever
  std::function<void()> then;
  std::function<bool()> until;
  int late_polls = 0;
  ncclResult_t late_code = ncclSuccess;
  std::int64_t collectives = 0;
  bool finalized = false;
  std::deque<fake_nccl::Batch> batches;
  std::shared_ptr<std::map<fake_nccl::Call, int>> calls;  // of the rank, children's too

  bool InProgress() const { return then || (until && !until()); }
};

namespace adaptive_train::fake_nccl {
namespace {

/// The next fault of the rank's call, counting it.
const Fault* FaultOf(ncclComm_t comm, Call call) {
  const int nth = (*comm->calls)[call]++;
  const auto& faults = comm->clique->script->faults;
  const auto found = std::ranges::find_if(faults, [&](const Fault& fault) {
    return fault.rank == comm->origin && fault.call == call && fault.nth == nth;
  });
  return found == faults.end() ? nullptr : &*found;
}

/// A call that is in progress for a while, then does `then` and is over when `until` is true.
ncclResult_t Begin(ncclComm_t comm, Call call, std::function<void()> then,
                   std::function<bool()> until = {}) {
  if (comm->error != nccl::ncclSuccess) return comm->error;
  if (comm->InProgress() || comm->finalized) return nccl::ncclInvalidArgument;
  const Fault* const fault = FaultOf(comm, call);
  comm->settle = 1;
  if (fault != nullptr) {
    if (fault->kind == Kind::kError) return comm->error = fault->code;
    if (fault->kind == Kind::kInProgress) comm->settle = -1;
    if (fault->kind == Kind::kSlow) comm->settle = fault->polls;
    if (fault->kind == Kind::kLateError) {
      comm->late_code = fault->code;
      comm->late_polls = fault->polls + 1;
    }
  }
  comm->then = std::move(then);
  comm->until = std::move(until);
  return nccl::ncclInProgress;
}

template <class T>
void Sum(const std::vector<Work*>& works, std::size_t first, std::size_t count,
         const std::vector<void*>& to) {
  for (std::size_t i = 0; i < count; ++i) {
    T sum = 0;
    for (const Work* work : works) sum += static_cast<const T*>(work->from)[first + i];
    for (void* out : to) static_cast<T*>(out)[i] = sum;
  }
}

void SumOf(const std::vector<Work*>& works, std::size_t first, std::size_t count,
           const std::vector<void*>& to) {
  works.front()->type == nccl::ncclFloat64 ? Sum<double>(works, first, count, to)
                                           : Sum<float>(works, first, count, to);
}

void Execute(const std::vector<Work*>& works) {
  const std::size_t count = works.front()->count;
  const std::size_t bytes = count * BytesOf(works.front()->type);
  if (works.front()->what == Work::What::kAllReduce) {
    std::vector<void*> to;
    for (const Work* work : works) to.push_back(work->to);
    SumOf(works, 0, count, to);
  }
  for (std::size_t member = 0; member < works.size(); ++member) {
    if (works.front()->what == Work::What::kReduceScatter)
      SumOf(works, member * count, count, {works[member]->to});
    if (works.front()->what == Work::What::kAllGather)
      for (const Work* work : works)
        std::memmove(static_cast<std::byte*>(work->to) + member * bytes, works[member]->from,
                     bytes);
  }
  for (Work* work : works) work->done = true;
}

/// The works at the members' fronts that are one collective; empty: somebody is not there yet.
std::vector<Work*> ReadyCollective(Clique& clique) {
  std::vector<Work*> works;
  for (const ncclComm_t comm : clique.comms) {
    if (comm == nullptr || comm->batches.empty()) return {};
    auto& front = comm->batches.front().works;
    const auto found =
        std::ranges::find_if(front, [](const Work& w) { return w.IsCollective() && !w.done; });
    if (found == front.end()) return {};
    const bool fits = works.empty() ||
                      (found->number == works.front()->number &&
                       found->what == works.front()->what && found->count == works.front()->count);
    if (!fits) return {};  // NCCL hangs, too
    works.push_back(&*found);
  }
  return works;
}

bool TransferOne(Clique& clique) {
  for (const ncclComm_t a : clique.comms) {
    if (a == nullptr || a->batches.empty()) continue;
    for (Work& send : a->batches.front().works) {
      const auto peer = static_cast<std::size_t>(std::max(send.peer, 0));
      if (send.what != Work::What::kSend || send.done || clique.comms[peer] == nullptr ||
          clique.comms[peer]->batches.empty())
        continue;
      auto& there = clique.comms[peer]->batches.front().works;
      const auto receive = std::ranges::find_if(there, [&](const Work& w) {
        return w.what == Work::What::kReceive && !w.done && w.peer == a->rank &&
               w.count == send.count;
      });
      if (receive == there.end()) continue;
      std::memcpy(receive->to, send.from, send.count * BytesOf(send.type));
      send.done = receive->done = true;
      return true;
    }
  }
  return false;
}

void Progress(Clique& clique) {
  for (bool moved = true; moved;) {
    moved = TransferOne(clique);
    if (const auto works = ReadyCollective(clique); !works.empty()) {
      Execute(works);
      moved = true;
    }
    for (const ncclComm_t comm : clique.comms)
      while (comm != nullptr && !comm->batches.empty() &&
             std::ranges::all_of(comm->batches.front().works, &Work::done)) {
        ++comm->batches.front().stream->done;
        comm->batches.pop_front();
        moved = true;
      }
  }
}

void Put(ncclComm_t comm, Batch batch) {
  for (Work& work : batch.works)
    if (work.IsCollective()) work.number = comm->collectives++;
  ++batch.stream->enqueued;
  comm->batches.push_back(std::move(batch));
  Progress(*comm->clique);
}

ncclResult_t Enqueue(ncclComm_t comm, Work work, nccl::cudaStream_t stream) {
  if (group_depth > 0) {
    group_comm = comm;
    group_batch.stream = static_cast<Stream*>(stream);
    group_batch.works.push_back(work);
    return nccl::ncclInProgress;
  }
  const std::lock_guard lock(mutex);
  return Begin(comm, Call::kEnqueue, [comm, work, stream] {
    Put(comm, Batch{{work}, static_cast<Stream*>(stream)});
  });
}

/// Makes the new communicators once all members are there.
void SplitNow(Clique& parent) {
  const auto round = std::exchange(parent.round, std::make_shared<SplitRound>());
  std::map<int, std::vector<std::pair<int, int>>> colors;  // (key, member)
  for (const auto& [member, entry] : round->entries)
    if (entry.color != nccl::kNoColor) colors[entry.color].emplace_back(entry.key, member);
  for (auto& [color, members] : colors) {
    std::ranges::sort(members);
    auto clique = std::make_shared<Clique>();
    clique->script = parent.script;
    clique->joined = static_cast<int>(members.size());
    for (const auto& [key, member] : members) {
      const ncclComm_t in = parent.comms[static_cast<std::size_t>(member)];
      auto* comm = new nccl::ncclComm;
      comm->clique = clique;
      comm->rank = static_cast<int>(clique->comms.size());
      comm->origin = in->origin;
      comm->calls = in->calls;
      clique->comms.push_back(comm);
      *round->entries.at(member).slot = comm;
    }
  }
  round->over = true;
}

void Leave(ncclComm_t comm) {
  Clique& clique = *comm->clique;
  const auto own = std::ranges::find(clique.comms, comm);
  if (own != clique.comms.end()) *own = nullptr;
  clique.round->entries.erase(comm->rank);
}

void TellPeers(Clique& clique) {
  if (!clique.script->peers_learn) return;
  for (const ncclComm_t other : clique.comms)
    if (other != nullptr && !other->finalized && other->error == nccl::ncclSuccess)
      other->error = nccl::ncclRemoteError;
}

ncclResult_t End(ncclComm_t comm, Call call) {
  std::unique_lock lock(mutex);
  const Fault* const fault = FaultOf(comm, call);
  Leave(comm);
  if (call == Call::kAbort) TellPeers(*comm->clique);
  if (fault != nullptr && fault->kind == Kind::kNeverReturns) {
    ++hanging;
    changed.wait(lock, [] { return released; });
    --hanging;
    changed.notify_all();
  }
  delete comm;
  return nccl::ncclSuccess;
}

}  // namespace

void Play(const nccl::ncclUniqueId& id, Script script) {
  const std::lock_guard lock(mutex);
  scripts[NumberOf(id)] = std::make_shared<const Script>(std::move(script));
}

void Die(const nccl::ncclUniqueId& id, int rank) {
  const std::lock_guard lock(mutex);
  const auto found = cliques.find(NumberOf(id));
  if (found == cliques.end()) return;
  const ncclComm_t comm = found->second->comms[static_cast<std::size_t>(rank)];
  if (comm == nullptr) return;
  Leave(comm);
  TellPeers(*found->second);
}

void SayVersion(int told) { version = told; }

void Release() {
  std::unique_lock lock(mutex);
  released = true;
  changed.notify_all();
  changed.wait(lock, [] { return hanging == 0; });
  released = false;
}

nccl::cudaStream_t NewStream() { return new Stream; }
void DeleteStream(nccl::cudaStream_t stream) { delete static_cast<Stream*>(stream); }
std::int64_t Enqueued(nccl::cudaStream_t stream) {
  const std::lock_guard lock(mutex);
  return static_cast<Stream*>(stream)->enqueued;
}
std::int64_t Done(nccl::cudaStream_t stream) {
  const std::lock_guard lock(mutex);
  return static_cast<Stream*>(stream)->done;
}

}  // namespace adaptive_train::fake_nccl

using namespace adaptive_train::fake_nccl;  // NOLINT: NCCL's functions have no namespace
using namespace adaptive_train::nccl;       // NOLINT

extern "C" {

FAKE_NCCL_API ncclResult_t ncclGetVersion(int* told) {
  *told = version;
  return ncclSuccess;
}

FAKE_NCCL_API ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const std::lock_guard lock(mutex);
  *id = {};
  std::memcpy(id->internal, &next_id, sizeof next_id);
  ++next_id;
  return ncclSuccess;
}

FAKE_NCCL_API ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id,
                                                  int rank, ncclConfig_t* config) {
  const bool good = config->size >= sizeof(ncclConfig_t) && config->magic == kConfigMagic &&
                    config->blocking == 0 && rank >= 0 && rank < size;
  if (!good) return ncclInvalidArgument;
  const std::lock_guard lock(mutex);
  auto& clique = cliques[NumberOf(id)];
  if (!clique) {
    clique = std::make_shared<Clique>();
    clique->comms.resize(static_cast<std::size_t>(size));
    const auto script = scripts.find(NumberOf(id));
    clique->script = script == scripts.end() ? std::make_shared<const Script>() : script->second;
  }
  auto* made = new ncclComm;
  made->clique = clique;
  made->rank = made->origin = rank;
  made->calls = std::make_shared<std::map<Call, int>>();
  *comm = made;
  return Begin(
      made, Call::kInit,
      [made] {
        made->clique->comms[static_cast<std::size_t>(made->rank)] = made;
        ++made->clique->joined;
      },
      [made, size] { return made->clique->joined == size; });
}

FAKE_NCCL_API ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* into,
                                         ncclConfig_t* config) {
  if (config != nullptr || into == nullptr) return ncclInvalidArgument;
  const std::lock_guard lock(mutex);
  *into = nullptr;
  const auto round = comm->clique->round;
  return Begin(
      comm, Call::kSplit,
      [comm, color, key, into, round] {
        round->entries[comm->rank] = {color, key, into};
        if (round->entries.size() == comm->clique->comms.size()) SplitNow(*comm->clique);
      },
      [round] { return round->over; });
}

FAKE_NCCL_API ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  const std::lock_guard lock(mutex);
  if (comm->late_polls > 0 && --comm->late_polls == 0) comm->error = comm->late_code;
  *error = comm->error;
  if (comm->error != ncclSuccess) return ncclSuccess;
  if (comm->then && comm->settle == 0) {
    const auto then = std::exchange(comm->then, nullptr);
    then();
  } else if (comm->then && comm->settle > 0) {
    --comm->settle;
  }
  if (comm->InProgress()) *error = ncclInProgress;
  return ncclSuccess;
}

FAKE_NCCL_API ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const std::lock_guard lock(mutex);
  return Begin(
      comm, Call::kFinalize, [comm] { ++comm->clique->finalized; },
      [comm] {
        const bool all = comm->clique->finalized == static_cast<int>(comm->clique->comms.size());
        if (all && comm->batches.empty()) comm->finalized = true;
        return comm->finalized;
      });
}

FAKE_NCCL_API ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  {
    const std::lock_guard lock(mutex);
    if (!comm->finalized) return ncclInvalidUsage;
  }
  return End(comm, Call::kDestroy);
}

FAKE_NCCL_API ncclResult_t ncclCommAbort(ncclComm_t comm) { return End(comm, Call::kAbort); }

FAKE_NCCL_API ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count,
                                         ncclDataType_t type, ncclRedOp_t, ncclComm_t comm,
                                         cudaStream_t stream) {
  return Enqueue(comm, {Work::What::kAllReduce, from, to, count, type, -1}, stream);
}

FAKE_NCCL_API ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t count,
                                             ncclDataType_t type, ncclRedOp_t, ncclComm_t comm,
                                             cudaStream_t stream) {
  return Enqueue(comm, {Work::What::kReduceScatter, from, to, count, type, -1}, stream);
}

FAKE_NCCL_API ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count,
                                         ncclDataType_t type, ncclComm_t comm,
                                         cudaStream_t stream) {
  return Enqueue(comm, {Work::What::kAllGather, from, to, count, type, -1}, stream);
}

FAKE_NCCL_API ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type,
                                    int peer, ncclComm_t comm, cudaStream_t stream) {
  return Enqueue(comm, {Work::What::kSend, from, nullptr, count, type, peer}, stream);
}

FAKE_NCCL_API ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer,
                                    ncclComm_t comm, cudaStream_t stream) {
  return Enqueue(comm, {Work::What::kReceive, nullptr, to, count, type, peer}, stream);
}

FAKE_NCCL_API ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}

FAKE_NCCL_API ncclResult_t ncclGroupEnd() {
  if (--group_depth > 0 || group_comm == nullptr) return ncclSuccess;
  const ncclComm_t comm = std::exchange(group_comm, nullptr);
  const std::lock_guard lock(mutex);
  return Begin(comm, Call::kEnqueue,
               [comm, batch = std::exchange(group_batch, {})] { Put(comm, batch); });
}

FAKE_NCCL_API const char* ncclGetErrorString(ncclResult_t error) {
  switch (error) {
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    default:
      return "no error";
  }
}

FAKE_NCCL_API const char* ncclGetLastError(ncclComm_t) { return ""; }
}
