#include "db/service/answer_request.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/seconds.h"
#include "db/database.h"
#include "db/job_rows.h"
#include "db/job_writes.h"
#include "db/presence.h"
#include "db/profile_rows.h"
#include "db/service/authorization.h"
#include "db/snapshots.h"

namespace adaptive_train {
namespace {

using store_answer::Done;
using store_answer::Refused;

/// What an answer is made with, once the request is authorized.
struct Context {
  Database& database;
  const Caller& caller;
  Access access;
  Counted counted = Counted::kAll;

  Presence PresenceIn(const std::string& cluster) const {
    return counted == Counted::kAll ? Presence() : Presence(database, cluster);
  }
};

template <class T>
StoreAnswer AnswerWith(Result<T> result) {
  if (!result) return Refused{std::move(result.error().message)};
  if constexpr (std::is_void_v<T>) {
    return Done{};
  } else {
    return StoreAnswer(std::move(*result));
  }
}

/// The name under which jobs are listed is not the client's to choose.
JobRecord InNameOf(const Caller& caller, JobRecord job) {
  job.user = caller.user;
  return job;
}

/// A user's clock may be wrong, or said to be: what is of the future would be new for ever.
void KeepOutOfTheFuture(Profile& profile) {
  const double now = EpochSecondsNow();
  const auto limit = [now](auto& figures) {
    for (auto& figure : figures)
      figure.evidence.measured_at = std::min(figure.evidence.measured_at, now);
  };
  limit(profile.links), limit(profile.devices), limit(profile.layers);
}
NumberedEntry KeptOutOfTheFuture(NumberedEntry entry) {
  if (auto* failure = std::get_if<FailureRecord>(&entry.entry))
    failure->time = std::min(failure->time, EpochSecondsNow());
  if (auto* measured = std::get_if<MeasuredRecord>(&entry.entry))
    KeepOutOfTheFuture(measured->profile);
  return entry;
}

StoreAnswer Answer(const Context&, const store_request::Hello&) {
  return Refused{"a connection says hello once"};
}
StoreAnswer Answer(const Context& in, const store_request::BeginJob& begin) {
  return InsertJob(in.database, in.access.owner, InNameOf(in.caller, begin.job));
}
StoreAnswer Answer(const Context& in, const store_request::Record& record) {
  return AnswerWith(WriteEntry(in.database, record.job_id, KeptOutOfTheFuture(record.entry)));
}
StoreAnswer Answer(const Context& in, const store_request::FoundOut& found) {
  WriteFoundEnd(in.database, found.job_id, found.was, found.end);
  return Done{};
}
StoreAnswer Answer(const Context& in, const store_request::TakeIn& take) {
  RunLedger run = take.run;
  run.job = InNameOf(in.caller, std::move(run.job));
  for (NumberedEntry& entry : run.entries) entry = KeptOutOfTheFuture(std::move(entry));
  return AnswerWith(WriteLedger(in.database, in.access.owner, run));
}
StoreAnswer Answer(const Context& in, const store_request::FindJobs& find) {
  return AnswerWith(ReadJobRows(in.database, in.access.jobs_of, find.query));
}
StoreAnswer Answer(const Context& in, const store_request::FailuresOf& of) {
  return AnswerWith(ReadFailures(in.database, of.job_id));
}
StoreAnswer Answer(const Context& in, const store_request::LaunchesOf& of) {
  return AnswerWith(ReadLaunches(in.database, of.job_id));
}
StoreAnswer Answer(const Context& in, const store_request::SaveMeasurements& save) {
  Profile profile = save.measured.profile;
  KeepOutOfTheFuture(profile);
  return AnswerWith(MergeProfile(in.database, in.access.owner, save.measured.cluster, profile));
}
StoreAnswer Answer(const Context& in, const store_request::ProfileOf& of) {
  ProfileQuery query = of.query;
  query.now = EpochSecondsNow();
  return ReadProfile(in.database, in.access.owner, query, in.PresenceIn(query.cluster));
}
StoreAnswer Answer(const Context& in, const store_request::MeasurementsOf& of) {
  return ReadMeasurements(in.database, in.access.owner, of.cluster, EpochSecondsNow(),
                          in.PresenceIn(of.cluster));
}
StoreAnswer Answer(const Context& in, const store_request::MeasuredClusters&) {
  return ReadClusters(in.database, in.access.owner,
                      in.counted == Counted::kAll ? ClustersOf::kAll : ClustersOf::kSeenBySlurm);
}

}  // namespace

StoreAnswer Greet(const store_request::Hello& hello) {
  const int protocol = std::min(hello.newest, kNewestProtocol);
  if (protocol >= std::max(hello.oldest, kOldestProtocol))
    return store_answer::Welcome{protocol, ADAPTIVE_TRAIN_VERSION};
  return Refused{fmt::format(
      "adaptive-traind {} speaks versions {} to {} of its protocol, and you speak {} to {}: "
      "upgrade the older of both",
      ADAPTIVE_TRAIN_VERSION, kOldestProtocol, kNewestProtocol, hello.oldest, hello.newest)};
}

void PrepareRequest(StoreRequest& request, Counted counted) {
  auto* begin = std::get_if<store_request::BeginJob>(&request);
  auto* record = std::get_if<store_request::Record>(&request);
  auto* take = std::get_if<store_request::TakeIn>(&request);
  if (record != nullptr) KeepWhatLasts(record->entry.entry);
  if (take != nullptr)
    for (NumberedEntry& entry : take->run.entries) KeepWhatLasts(entry.entry);
  if (counted == Counted::kAll) return;
  if (begin != nullptr) begin->job.account.clear();
  if (take != nullptr) take->run.job.account.clear();
}

StoreAnswer AnswerRequest(Database& database, const Caller& caller, const StoreRequest& request,
                          Counted counted) {
  const auto access = Authorize(database, caller, request);
  if (!access) return Refused{access.error().message};
  const Context context{database, caller, *access, counted};
  return std::visit([&](const auto& asked) { return Answer(context, asked); }, request);
}

std::string AnswerText(const StoreAnswer& answer) {
  std::string text = ToText(answer);
  if (text.size() <= kMaxFrameBytes) return text;
  return ToText(
      Refused{fmt::format("the answer is longer than {} MiB: ask for less, such as jobs of a "
                          "shorter time (-S, -E)",
                          kMaxFrameBytes >> 20)});
}

}  // namespace adaptive_train
