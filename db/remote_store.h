// The profile store that adaptive-traind keeps for all users of a cluster.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "db/profile_store.h"
#include "db/store_connection.h"
#include "db/store_location.h"
#include "db/store_message.h"

namespace adaptive_train {

/// Asks the service over its socket. The service knows who asks: jobs, and the layers of models,
/// are those of the calling user; links, devices and counts of failures are everybody's.
///
/// Blocking: each call ends within StoreOptions::patience. After a call that the service has not
/// answered in time, or in words that are not understood, all calls fail at once. A service that
/// was restarted between two calls is connected to again.
class RemoteStore final : public ProfileStore {
 public:
  /// Connects and agrees on a version of the protocol.
  static Result<RemoteStore> Open(const StoreLocation& location, const StoreOptions& options = {});

  Result<std::int64_t> BeginJob(const JobRecord& job) override;
  Result<void> Record(std::int64_t job_id, const NumberedEntry& entry) override;
  Result<void> FoundOut(std::int64_t job_id, JobState was, const FoundEnd& end) override;
  /// Long ledgers go in several requests, each one transaction.
  Result<std::int64_t> TakeIn(const RunLedger& run) override;
  Result<std::vector<JobRow>> FindJobs(const JobQuery& query) override;
  Result<std::vector<FailureRecord>> FailuresOf(std::int64_t job_id) override;
  Result<std::vector<LaunchRecord>> LaunchesOf(std::int64_t job_id) override;
  Result<void> SaveMeasurements(const std::string& cluster, const Profile& profile) override;
  Result<Profile> ProfileOf(const ProfileQuery& query) override;
  Result<Profile> MeasurementsOf(const std::string& cluster) override;
  Result<std::vector<std::string>> MeasuredClusters() override;

 private:
  using Clock = StoreConnection::Clock;

  RemoteStore(StoreLocation location, const StoreOptions& options);
  /// How long the call that begins now may take.
  std::chrono::milliseconds Patience() const;
  Result<StoreAnswer> Converse(const StoreRequest& request, Clock::time_point deadline);
  Result<void> Connect(Clock::time_point deadline);
  /// The answer to `request`, which must be a T.
  template <class T>
  Result<T> Ask(const StoreRequest& request);

  StoreLocation location_;
  std::chrono::milliseconds patience_;
  std::optional<std::chrono::milliseconds> launch_budget_;  // what is left; none: no launch waits
  std::optional<StoreConnection> connection_;
  std::optional<Error> failed_;  // why nothing is asked any more
};

}  // namespace adaptive_train
