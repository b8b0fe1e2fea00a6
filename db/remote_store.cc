#include "db/remote_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/file_io.h"
#include "db/ledger_json.h"

namespace adaptive_train {
namespace {

using std::chrono::milliseconds;
using store_answer::Done;

/// Of a ledger's entries in one request.
constexpr std::size_t kBytesTakenAtOnce = kMaxFrameBytes / 4;

Result<void> Nothing(const Result<Done>& done) {
  if (!done) return tl::unexpected(done.error());
  return {};
}

}  // namespace

RemoteStore::RemoteStore(StoreLocation location, const StoreOptions& options)
    : location_(std::move(location)),
      patience_(options.patience),
      launch_budget_(options.launch_budget) {}

Result<RemoteStore> RemoteStore::Open(const StoreLocation& location, const StoreOptions& options) {
  RemoteStore store(location, options);
  const auto began = Clock::now();
  auto connected = store.Connect(began + store.Patience());
  if (!connected) return FailIn(NameOf(location), connected.error());
  if (store.launch_budget_)
    *store.launch_budget_ -= std::chrono::ceil<milliseconds>(Clock::now() - began);
  return store;
}

milliseconds RemoteStore::Patience() const {
  return std::max(milliseconds(0), std::min(patience_, launch_budget_.value_or(patience_)));
}

Result<void> RemoteStore::Connect(Clock::time_point deadline) {
  auto connection = StoreConnection::Open(location_, deadline);
  if (!connection) return tl::unexpected(connection.error());
  connection_.emplace(std::move(*connection));
  auto answer = connection_->Exchange(ToText(store_request::Hello{}), deadline)
                    .and_then([](const std::string& text) { return ReadStoreAnswer(text); });
  if (!answer) return tl::unexpected(answer.error());
  if (const auto* refused = std::get_if<store_answer::Refused>(&*answer))
    return Fail(Printable(refused->why, 1000), ExitCode::kStore);
  const auto* welcome = std::get_if<store_answer::Welcome>(&*answer);
  if (welcome == nullptr || welcome->protocol < kOldestProtocol ||
      welcome->protocol > kNewestProtocol)
    return Fail("what answers does not keep to the protocol of adaptive-traind", ExitCode::kStore);
  return {};
}

Result<StoreAnswer> RemoteStore::Converse(const StoreRequest& request, Clock::time_point deadline) {
  if (connection_->Closed()) {
    if (auto again = Connect(deadline); !again) return tl::unexpected(again.error());
  }
  return connection_->Exchange(ToText(request), deadline).and_then([](const std::string& text) {
    return ReadStoreAnswer(text);
  });
}

template <class T>
Result<T> RemoteStore::Ask(const StoreRequest& request) {
  if (failed_) return tl::unexpected(*failed_);
  const auto began = Clock::now();
  auto answer = Converse(request, began + Patience());
  if (launch_budget_) *launch_budget_ -= std::chrono::ceil<milliseconds>(Clock::now() - began);
  if (answer) {
    if (auto* asked = std::get_if<T>(&*answer)) return std::move(*asked);
    if (const auto* refused = std::get_if<store_answer::Refused>(&*answer))
      return Fail(fmt::format("{}: {}", NameOf(location_), Printable(refused->why, 1000)),
                  ExitCode::kStore);
    answer =
        Fail("what answers does not keep to the protocol of adaptive-traind", ExitCode::kStore);
  }
  failed_ = answer.error();
  failed_->message = NameOf(location_) + ": " + failed_->message;
  return tl::unexpected(*failed_);
}

Result<std::int64_t> RemoteStore::BeginJob(const JobRecord& job) {
  store_request::BeginJob begin{job};
  if (!begin.job.launcher) begin.job.launcher = ThisProcess();
  return Ask<std::int64_t>(begin);
}

Result<void> RemoteStore::Record(std::int64_t job_id, const NumberedEntry& entry) {
  return Nothing(Ask<Done>(store_request::Record{job_id, entry}));
}

Result<void> RemoteStore::FoundOut(std::int64_t job_id, JobState was, const FoundEnd& end) {
  return Nothing(Ask<Done>(store_request::FoundOut{job_id, was, end}));
}

Result<std::int64_t> RemoteStore::TakeIn(const RunLedger& run) {
  std::int64_t taken = 0;
  auto next = run.entries.begin();
  do {
    store_request::TakeIn part{{run.job, {}}};
    for (std::size_t bytes = 0; next != run.entries.end(); ++next) {
      bytes += LedgerLine(run.job.uid, *next).size();
      if (bytes > kBytesTakenAtOnce && !part.run.entries.empty()) break;
      part.run.entries.push_back(*next);
    }
    const auto count = Ask<std::int64_t>(part);
    if (!count) return count;
    taken += *count;
  } while (next != run.entries.end());
  return taken;
}

Result<std::vector<JobRow>> RemoteStore::FindJobs(const JobQuery& query) {
  return Ask<std::vector<JobRow>>(store_request::FindJobs{query});
}

Result<std::vector<FailureRecord>> RemoteStore::FailuresOf(std::int64_t job_id) {
  return Ask<std::vector<FailureRecord>>(store_request::FailuresOf{job_id});
}

Result<std::vector<LaunchRecord>> RemoteStore::LaunchesOf(std::int64_t job_id) {
  return Ask<std::vector<LaunchRecord>>(store_request::LaunchesOf{job_id});
}

Result<void> RemoteStore::SaveMeasurements(const std::string& cluster, const Profile& profile) {
  return Nothing(Ask<Done>(store_request::SaveMeasurements{{cluster, profile}}));
}

Result<Profile> RemoteStore::ProfileOf(const ProfileQuery& query) {
  auto profile = Ask<Profile>(store_request::ProfileOf{query});
  launch_budget_.reset();  // the last answer that a launch waits for
  return profile;
}

Result<Profile> RemoteStore::MeasurementsOf(const std::string& cluster) {
  return Ask<Profile>(store_request::MeasurementsOf{cluster});
}

Result<std::vector<std::string>> RemoteStore::MeasuredClusters() {
  return Ask<std::vector<std::string>>(store_request::MeasuredClusters{});
}

}  // namespace adaptive_train
