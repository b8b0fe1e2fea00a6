#include "runtime/comm/nccl_communicator.h"

#include <fmt/format.h>

#include <cassert>
#include <future>
#include <utility>

#include "runtime/comm/nccl_member.h"

namespace adaptive_train {
namespace {

using Kind = NcclOperation::Kind;
using nccl::ncclResult_t;

/// The part of member `number`.
std::byte* PartOf(const NcclArray& data, std::size_t part, int number) {
  return static_cast<std::byte*>(data.data) +
         static_cast<std::size_t>(number) * part * data.element_bytes;
}

/// Puts all transfers into one call, which NCCL takes as a whole.
ncclResult_t CallTransfers(const NcclMember& member, const std::vector<NcclTransfer>& transfers) {
  const nccl::Library& library = member.library();
  ncclResult_t outcome = library.group_start();
  if (outcome != nccl::ncclSuccess) return outcome;
  for (const NcclTransfer& t : transfers) {
    const auto [data, count, type, bytes] = t.data;
    const ncclResult_t called =
        t.is_send ? library.send(data, count, type, t.member, member.comm(), member.stream())
                  : library.receive(data, count, type, t.member, member.comm(), member.stream());
    // The group must be ended in any case.
    if (called != nccl::ncclSuccess && called != nccl::ncclInProgress) outcome = called;
  }
  const ncclResult_t ended = library.group_end();
  return outcome == nccl::ncclSuccess ? ended : outcome;
}

}  // namespace

struct NcclCommunicator::Call {
  Kind kind;
  std::function<ncclResult_t()> call;
  std::vector<int> peers = {};
};

Result<NcclInvitation> Invite(const nccl::Library& library) {
  NcclInvitation invitation;
  invitation.version = library.version;
  const ncclResult_t made = library.get_unique_id(&invitation.id);
  if (made == nccl::ncclSuccess) return invitation;
  return Fail(fmt::format("NCCL makes no identifier: {}", library.get_error_string(made)));
}

NcclCommunicator::NcclCommunicator(const nccl::Library& library, NcclExecutor& executor,
                                   NcclStream stream, NcclPlace place, NcclDeadlines deadlines)
    : executor_(executor),
      member_(std::make_shared<NcclMember>(library, executor, std::move(stream), std::move(place),
                                           deadlines)) {}

NcclCommunicator::~NcclCommunicator() {
  std::promise<void> told;
  executor_.Post([this, &told] {
    member_->Fail(MemberFault::kNone, "");
    told.set_value();
  });
  told.get_future().wait();
  member_->WaitUntilOver();
}

Request NcclCommunicator::Launch(const char* what, Call call) {
  auto operation = std::make_shared<NcclOperation>(
      fmt::format("{} {} of the {}", what, ++started_[what], member_->place().name), call.kind,
      std::move(call.peers), member_, std::move(call.call));
  executor_.Post([operation] { operation->Start(); });
  return Request(std::move(operation), &executor_);
}

Request NcclCommunicator::Join(const NcclInvitation& invitation) {
  const NcclPlace& place = member_->place();
  if (invitation.version != member_->library().version) {
    const std::string cause =
        fmt::format("NCCL {} here, {} on rank {}: they must be of one version",
                    member_->library().version, invitation.version, place.members.front());
    executor_.Post([member = member_, cause] { member->Fail(MemberFault::kOwn, cause); });
  }
  return Launch("join", {Kind::kJoin, [member = member_.get(), id = invitation.id] {
                           const NcclPlace& at = member->place();
                           nccl::ncclConfig_t config;
                           nccl::ncclComm_t comm = nullptr;
                           const ncclResult_t begun = member->library().comm_init_rank_config(
                               &comm, static_cast<int>(at.members.size()), id, at.number, &config);
                           member->Adopt(comm);
                           return begun;
                         }});
}

Request NcclCommunicator::Split(NcclCommunicator* child) {
  auto into = child == nullptr ? nullptr : child->member_;
  return Launch("split", {Kind::kSplit, [member = member_.get(), into] {
                            // A group's color is its first member's rank: no two have one in common.
                            const int color = into ? into->place().members.front() : nccl::kNoColor;
                            return member->library().comm_split(member->comm(), color,
                                                                into ? into->place().number : 0,
                                                                member->SplitsInto(into), nullptr);
                          }});
}

Request NcclCommunicator::AllReduce(NcclArray data) {
  return Launch("all-reduce", {Kind::kCollective, [member = member_.get(), data] {
                                 return member->library().all_reduce(
                                     data.data, data.data, data.count, data.type, nccl::ncclSum,
                                     member->comm(), member->stream());
                               }});
}

Request NcclCommunicator::AllGather(NcclArray data) {
  assert(data.count % member_->place().members.size() == 0);
  return Launch("all-gather", {Kind::kCollective, [member = member_.get(), data] {
                                 const std::size_t part =
                                     data.count / member->place().members.size();
                                 return member->library().all_gather(
                                     PartOf(data, part, member->place().number), data.data, part,
                                     data.type, member->comm(), member->stream());
                               }});
}

Request NcclCommunicator::ReduceScatter(NcclArray data) {
  assert(data.count % member_->place().members.size() == 0);
  return Launch("reduce-scatter",
                {Kind::kCollective, [member = member_.get(), data] {
                   const std::size_t part = data.count / member->place().members.size();
                   return member->library().reduce_scatter(
                       data.data, PartOf(data, part, member->place().number), part, data.type,
                       nccl::ncclSum, member->comm(), member->stream());
                 }});
}

Request NcclCommunicator::Exchange(std::vector<NcclTransfer> transfers) {
  std::vector<int> peers;
  for (const NcclTransfer& transfer : transfers)
    peers.push_back(member_->place().members[static_cast<std::size_t>(transfer.member)]);
  return Launch("exchange", {Kind::kTransfers,
                             [member = member_.get(), all = std::move(transfers)] {
                               return CallTransfers(*member, all);
                             },
                             std::move(peers)});
}

Request NcclCommunicator::Finish() {
  return Launch("end", {Kind::kFinish, [member = member_.get()] {
                          return member->library().comm_finalize(member->comm());
                        }});
}

void NcclCommunicator::SetDeadlines(NcclDeadlines deadlines) { member_->SetDeadlines(deadlines); }

MemberReport NcclCommunicator::Report() const { return member_->Report(); }

}  // namespace adaptive_train
