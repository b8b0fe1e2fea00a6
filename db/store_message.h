// What a client and adaptive-traind say to each other (docs/formats.md): the client asks, and the
// service answers each request before it reads the next.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/profile.h"
#include "core/result.h"
#include "db/ledger_entry.h"
#include "db/profile_store.h"
#include "db/records.h"

namespace adaptive_train {

/// The versions of the protocol that this program speaks. Messages get new members and requests
/// without a new version: who does not know them passes over the ones and refuses the others.
inline constexpr int kOldestProtocol = 1, kNewestProtocol = 1;

/// A frame is its text's length, 4 bytes with the highest first, and the text, which is JSON.
inline constexpr std::size_t kFrameHeaderBytes = 4;
inline constexpr std::size_t kMaxFrameBytes = std::size_t{16} << 20;  // of the text

std::string FrameOf(const std::string& text);
/// The text's length, from kFrameHeaderBytes bytes.
std::size_t FrameSize(const char* header);

namespace store_request {
/// The first of a connection.
struct Hello {
  int oldest = kOldestProtocol, newest = kNewestProtocol;
  std::string program = ADAPTIVE_TRAIN_VERSION;
};
// The calls of ProfileStore.
struct BeginJob {
  JobRecord job;
};
struct Record {
  std::int64_t job_id = 0;
  NumberedEntry entry;
};
struct FoundOut {
  std::int64_t job_id = 0;
  JobState was = JobState::kRunning;
  FoundEnd end;
};
struct TakeIn {
  RunLedger run;
};
struct FindJobs {
  JobQuery query;
};
struct FailuresOf {
  std::int64_t job_id = 0;
};
struct LaunchesOf {
  std::int64_t job_id = 0;
};
struct SaveMeasurements {
  MeasuredRecord measured;
};
struct ProfileOf {
  ProfileQuery query;
};
struct MeasurementsOf {
  std::string cluster;
};
struct MeasuredClusters {};
}  // namespace store_request

using StoreRequest =
    std::variant<store_request::Hello, store_request::BeginJob, store_request::Record,
                 store_request::FoundOut, store_request::TakeIn, store_request::FindJobs,
                 store_request::FailuresOf, store_request::LaunchesOf,
                 store_request::SaveMeasurements, store_request::ProfileOf,
                 store_request::MeasurementsOf, store_request::MeasuredClusters>;

/// "begin_job".
std::string_view NameOf(const StoreRequest& request);
/// True for a request that changes the store.
bool Writes(const StoreRequest& request);

std::string ToText(const StoreRequest& request);
/// Reads untrusted text. Fails in one line.
Result<StoreRequest> ReadStoreRequest(std::string_view text);

namespace store_answer {
/// The version of the protocol from here on.
struct Welcome {
  int protocol = kNewestProtocol;
  std::string program = ADAPTIVE_TRAIN_VERSION;
};
struct Done {};
/// The request changed nothing.
struct Refused {
  std::string why;  // one line
};
}  // namespace store_answer

/// A number is a job's id or a count of entries, texts are clusters.
using StoreAnswer = std::variant<store_answer::Welcome, store_answer::Done, store_answer::Refused,
                                 std::int64_t, std::vector<JobRow>, std::vector<FailureRecord>,
                                 std::vector<LaunchRecord>, Profile, std::vector<std::string>>;

std::string ToText(const StoreAnswer& answer);
/// Reads untrusted text. Fails in one line.
Result<StoreAnswer> ReadStoreAnswer(std::string_view text);

}  // namespace adaptive_train
