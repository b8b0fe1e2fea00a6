// Messages read again as they were written, and odd ones are refused in one line.
#include "db/store_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace adaptive_train::store_message_test {
namespace {

using ::testing::HasSubstr;

JobRecord SomeJob() {
  JobRecord job;
  job.cluster = "alpha";
  job.array_job_id = 7, job.array_task_id = 3;
  job.account = "physics";
  job.name = "line\nbreak and \"quotes\"";
  job.start_time = 1010.5;
  job.launcher = LauncherProcess{"host", "boot", "pid:[1]", 12, 34};
  job.uid = std::string(32, 'a');
  return job;
}

std::vector<StoreRequest> OneOfEach() {
  JobQuery query;
  query.ids = {{true, 3, std::nullopt}, {false, 120, 4}};
  query.users = {"ann"};
  query.start = 1.5;
  query.states = {JobState::kFailed, JobState::kRunning};
  query.newest = 50;
  query.configs = true;
  Profile profile;
  profile.links = {{"n1", "n2", 1e-4, 1e9, {2, 0.05, 1.9e9}}};
  return {store_request::Hello{},
          store_request::BeginJob{SomeJob()},
          store_request::Record{4, {2, PlanRecord{"{}", 2, std::nullopt, "why"}}},
          store_request::FoundOut{4, JobState::kRunning, {JobState::kLost, 1, "gone", "FAILED"}},
          store_request::TakeIn{{SomeJob(), {{1, LaunchRecord{}}, {2, JobEnd{}}}}},
          store_request::FindJobs{query},
          store_request::FailuresOf{4},
          store_request::LaunchesOf{4},
          store_request::SaveMeasurements{{"alpha", profile}},
          store_request::ProfileOf{{"alpha", {"n1", "n2"}, {"cpu"}, "model", 1.9e9, 3600, false}},
          store_request::MeasurementsOf{"alpha"},
          store_request::MeasuredClusters{}};
}

TEST(StoreMessageTest, RequestsReadAgainAsTheyWereWritten) {
  const auto requests = OneOfEach();
  ASSERT_EQ(requests.size(), std::variant_size_v<StoreRequest>);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(requests[i].index(), i);
    const std::string text = ToText(requests[i]);
    const auto again = ReadStoreRequest(text);
    ASSERT_TRUE(again) << again.error().message << " in " << text;
    EXPECT_EQ(again->index(), i);
    EXPECT_EQ(ToText(*again), text);
  }
}

TEST(StoreMessageTest, OnlyRequestsThatWriteGoToTheWriter) {
  std::string writing;
  for (const StoreRequest& request : OneOfEach())
    if (Writes(request)) writing += std::to_string(request.index()) + " ";
  EXPECT_EQ(writing, "1 2 3 4 8 ");
}

TEST(StoreMessageTest, AFrameBeginsWithItsLength) {
  const std::string text(0x010203, 'x');
  const std::string frame = FrameOf(text);
  EXPECT_EQ(frame.substr(0, kFrameHeaderBytes), std::string("\0\1\2\3", 4));
  EXPECT_EQ(frame.substr(kFrameHeaderBytes), text);
  EXPECT_EQ(FrameSize(frame.data()), text.size());
  EXPECT_EQ(FrameSize("\xff\xff\xff\xff"), 0xffffffffu);
}

TEST(StoreMessageTest, OddRequestsAreRefusedInOneLine) {
  const std::pair<std::string, std::string> kOdd[] = {
      {"", "not JSON"},
      {"[1]", "not an object"},
      {"{}", "request: missing"},
      {R"({"request":7})", "request: not a string"},
      {R"({"request":"record","id":1,"entry":{"number":0,"plan":{}}})", "entry.number"},
      {R"({"request":"record","id":1,"entry":{"number":1,"song":{}}})", "entry.number"},
      {R"({"request":"begin_job","run":"x","job":{}})", "job.cluster: missing"},
      {R"({"request":"failures_of","id":1e30})", "id: not a whole number"},
      {R"({"request":"found_out","id":1,"was":"SLEEPING"})", "there is no state SLEEPING"},
      {R"({"request":"profile_of","cluster":"a","nodes":[],"device_kinds":[],"model_key":"",)"
       R"("now":1,"failure_half_life_s":0})",
       "failure_half_life_s"},
      {std::string(1000, '['), "nested too deeply"}};
  for (const auto& [text, why] : kOdd) {
    const auto read = ReadStoreRequest(text);
    ASSERT_FALSE(read) << text;
    EXPECT_THAT(read.error().message, HasSubstr(why));
    EXPECT_EQ(read.error().message.find('\n'), std::string::npos);
    EXPECT_LT(read.error().message.size(), 500u);
  }
}

TEST(StoreMessageTest, ATextThatAsksForMuchMemoryIsRefused) {
  std::string text = "[";
  for (int i = 0; i < 3'000'000; ++i) text += "0,";
  const auto read = ReadStoreRequest(text + "0]");
  ASSERT_FALSE(read);
  EXPECT_THAT(read.error().message, HasSubstr("too many values"));
}

}  // namespace
}  // namespace adaptive_train::store_message_test
