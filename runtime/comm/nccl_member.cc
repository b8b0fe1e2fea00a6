#include "runtime/comm/nccl_member.h"

#include <fmt/format.h>

#include <thread>
#include <utility>

namespace adaptive_train {
namespace {

using nccl::ncclResult_t;

constexpr const char* kMustEnd = "; the rank must end";

double SecondsOf(std::chrono::milliseconds time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

void NcclOperation::Start() { member_->Enter(shared_from_this()); }

void NcclOperation::Cancel(const std::string& cause) {
  if (!Done()) member_->Fail(MemberFault::kLate, cause);
}

NcclMember::NcclMember(const nccl::Library& library, NcclExecutor& executor, NcclStream stream,
                       NcclPlace place, NcclDeadlines deadlines)
    : library_(library),
      executor_(executor),
      stream_(std::move(stream)),
      place_(std::move(place)),
      deadlines_(deadlines) {
  report_.rank = place_.members[static_cast<std::size_t>(place_.number)];
  report_.version = library_.version;
}

void NcclMember::Enter(Pointer operation) {
  if (phase_ != Phase::kOpen) return operation->End(CommError{operation->Name(), -1, WhyOver()});
  if (Idle()) progress_ = Clock::now();
  entered_.push_back(std::move(operation));
  {
    const std::lock_guard lock(mutex_);
    over_ = false;
  }
  KeepPolling();
}

void NcclMember::Adopt(nccl::ncclComm_t comm) {
  if (phase_ == Phase::kOpen)
    comm_ = comm;
  else  // it has failed before
    std::thread([abort = library_.comm_abort, comm] { abort(comm); }).detach();
}

nccl::ncclComm_t* NcclMember::SplitsInto(std::shared_ptr<NcclMember> child) {
  split_ = {std::move(child), std::make_shared<nccl::ncclComm_t>(nullptr)};
  return split_.made.get();
}

bool NcclMember::Poll() {
  if (phase_ == Phase::kOpen) Advance();
  if (phase_ == Phase::kEnding) PollEnd();
  polled_ = phase_ == Phase::kEnding || !Idle();
  if (!polled_) {
    const std::lock_guard lock(mutex_);
    over_ = true;
    changed_.notify_all();
  }
  return polled_;
}

void NcclMember::Advance() {
  ncclResult_t state = nccl::ncclSuccess;
  if (comm() != nullptr) {
    const ncclResult_t asked = library_.comm_get_async_error(comm(), &state);
    if (asked != nccl::ncclSuccess) state = asked;
  }
  if (state != nccl::ncclSuccess && state != nccl::ncclInProgress) return FailBy(state);
  if (state == nccl::ncclSuccess && calling_) Taken();
  if (phase_ == Phase::kOpen) EndReached();
  if (phase_ == Phase::kOpen && state == nccl::ncclSuccess && MayCall()) CallNext();
  if (phase_ == Phase::kOpen) CheckDeadline();
}

bool NcclMember::MayCall() const {
  if (calling_ || entered_.empty()) return false;
  switch (entered_.front()->kind()) {
    case NcclOperation::Kind::kJoin:
      return comm() == nullptr;
    case NcclOperation::Kind::kSplit:
    case NcclOperation::Kind::kFinish:  // nothing else may be under way
      return comm() != nullptr && running_.empty();
    case NcclOperation::Kind::kCollective:
    case NcclOperation::Kind::kTransfers:
      break;
  }
  return comm() != nullptr;  // not where a split is still to make it
}

void NcclMember::CallNext() {
  calling_ = std::move(entered_.front());
  entered_.pop_front();
  const ncclResult_t outcome = calling_->Call();
  if (outcome != nccl::ncclSuccess && outcome != nccl::ncclInProgress) FailBy(outcome);
}

/// NCCL has taken the call that was in progress.
void NcclMember::Taken() {
  progress_ = Clock::now();
  const Pointer operation = std::exchange(calling_, nullptr);
  {
    const std::lock_guard lock(mutex_);
    ++report_.taken;
    if (operation->kind() != NcclOperation::Kind::kTransfers) ++report_.collectives;
  }
  switch (operation->kind()) {
    case NcclOperation::Kind::kSplit:
      if (split_.child) split_.child->Adopt(*split_.made);
      split_ = {};
      return operation->End(std::nullopt);
    case NcclOperation::Kind::kJoin:
      return operation->End(std::nullopt);
    case NcclOperation::Kind::kFinish:
      calling_ = operation;  // over with the thread
      ending_ = "ncclCommDestroy";
      return BeginEnd([destroy = library_.comm_destroy, comm = comm()] { destroy(comm); });
    case NcclOperation::Kind::kCollective:
    case NcclOperation::Kind::kTransfers:
      operation->SetPoint(stream_.mark());
      running_.push_back(operation);
  }
}

/// Ends operations whose work the stream has done.
void NcclMember::EndReached() {
  while (!running_.empty()) {
    const Result<bool> reached = running_.front()->Reached();
    if (!reached) return Fail(MemberFault::kOwn, reached.error().message);
    if (!*reached) return;
    progress_ = Clock::now();
    running_.front()->End(std::nullopt);
    running_.pop_front();
  }
}

void NcclMember::CheckDeadline() {
  if (Idle()) return;
  const auto limit = [this] {
    const std::lock_guard lock(mutex_);
    return deadlines_.progress;
  }();
  if (Clock::now() - progress_ < limit) return;
  Fail(MemberFault::kLate,
       fmt::format("{} for {} s", calling_ ? "NCCL is in progress" : "its work does not end",
                   SecondsOf(limit)));
}

std::string NcclMember::ErrorText(ncclResult_t error) const {
  const char* const last = comm() == nullptr ? nullptr : library_.get_last_error(comm());
  std::string text = library_.get_error_string(error);
  if (last != nullptr && *last != '\0') text += fmt::format(" ({})", last);
  return text;
}

void NcclMember::FailBy(ncclResult_t error) {
  Fail(error == nccl::ncclRemoteError ? MemberFault::kPeer : MemberFault::kOwn, ErrorText(error));
}

void NcclMember::Fail(MemberFault fault, const std::string& cause) {
  if (phase_ != Phase::kOpen) return;
  const Pointer first = !running_.empty()   ? running_.front()
                        : calling_          ? calling_
                        : !entered_.empty() ? entered_.front()
                                            : nullptr;
  {
    const std::lock_guard lock(mutex_);
    report_.fault = fault;
    report_.cause = cause;
    report_.untaken = first && running_.empty();
    if (first) report_.operation = first->Name(), report_.peers = first->peers();
    over_ = false;
  }
  KeepPolling();
  if (comm() == nullptr) {
    returned_ = std::make_shared<std::atomic<bool>>(true);
    phase_ = Phase::kEnding;
    return;
  }
  // A split may have made a communicator, which is aborted after its parent.
  const auto split = std::exchange(split_, {});
  if (split.child) split.child->Fail(fault, cause);
  ending_ = "ncclCommAbort";
  BeginEnd([abort = library_.comm_abort, comm = comm(), made = split.made] {
    abort(comm);
    if (made && *made != nullptr) abort(*made);
  });
}

void NcclMember::KeepPolling() {
  if (std::exchange(polled_, true)) return;
  executor_.Poll([self = shared_from_this()] { return self->Poll(); });
}

/// The communicator is the thread's from now on. What the thread needs is its own, since it may be
/// left behind.
void NcclMember::BeginEnd(std::function<void()> in_thread) {
  phase_ = Phase::kEnding;
  ending_since_ = Clock::now();
  returned_ = std::make_shared<std::atomic<bool>>(false);
  std::thread([returned = returned_, in_thread = std::move(in_thread)] {
    in_thread();
    returned->store(true);
  }).detach();
}

void NcclMember::PollEnd() {
  if (*returned_) return Over("");
  const auto limit = [this] {
    const std::lock_guard lock(mutex_);
    return deadlines_.end;
  }();
  if (Clock::now() - ending_since_ < limit) return;
  const std::string hung = fmt::format("{} has not returned for {} s", ending_, SecondsOf(limit));
  const bool destroyed = Report().fault == MemberFault::kNone;
  {
    const std::lock_guard lock(mutex_);
    report_.left_behind = true;
    if (destroyed && calling_) {
      report_.fault = MemberFault::kOwn;
      report_.operation = calling_->Name();
      report_.cause = hung;
    }
  }
  Over(destroyed ? kMustEnd : "; " + hung + kMustEnd);
}

/// Ends all that was under way: well only where the communicator was to end.
void NcclMember::Over(const std::string& addition) {
  phase_ = Phase::kOver;
  const MemberReport report = Report();
  std::deque<Pointer> left = std::exchange(running_, {});
  if (calling_) left.push_back(std::exchange(calling_, nullptr));
  left.insert(left.end(), entered_.begin(), entered_.end());
  entered_.clear();
  for (const Pointer& operation : left) {
    const std::string& name = operation->Name();
    const int peer = operation->peers().size() == 1 ? operation->peers().front() : -1;
    if (report.fault == MemberFault::kNone && operation->kind() == NcclOperation::Kind::kFinish) {
      operation->End(std::nullopt);
    } else if (name == report.operation) {
      operation->End(CommError{name, peer, report.cause + addition});
    } else {
      operation->End(CommError{name, peer, WhyOver() + addition});
    }
  }
}

/// To operations that did not fail themselves.
std::string NcclMember::WhyOver() const {
  const MemberReport report = Report();
  if (report.fault == MemberFault::kNone) return "the communicator has ended";
  if (report.operation.empty()) return report.cause;
  return fmt::format("the communicator has ended after {}: {}", report.operation, report.cause);
}

void NcclMember::SetDeadlines(NcclDeadlines deadlines) {
  const std::lock_guard lock(mutex_);
  deadlines_ = deadlines;
}

MemberReport NcclMember::Report() const {
  const std::lock_guard lock(mutex_);
  return report_;
}

void NcclMember::WaitUntilOver() const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return over_; });
}

}  // namespace adaptive_train
