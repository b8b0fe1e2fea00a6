// What one user stores and another may see: two users at one service, each by his own uid.

#include <regex>

#include "core/seconds.h"
#include "tests/unit/db_service/service_fixture.h"

namespace adaptive_train::privacy_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kSecret = "anns-secret";

/// Ann's job, of which every text is secret, with measurements and a failure of n1.
std::string StoreAnnsJob(RemoteStore& store, const std::string& uid) {
  JobRecord job = SampleJob(kSecret);
  job.uid = uid;
  job.slurm_job_id = 77;
  job.run_dir = job.config = job.options = kSecret;
  job.user = "root";  // the service knows better
  const auto id = store.BeginJob(job);
  if (!id) return id.error().message;
  const Evidence evidence{2, 0.05, 1.9e9};
  Profile profile;
  profile.links = {{"n1", "n2", 1e-4, 1e9, evidence}};
  profile.layers = {{"cpu", "model", kSecret, 2, 0.1, 0.2, 0, 0.01, 0, evidence}};
  FailureRecord failure;
  failure.time = 1.9e9;
  failure.host = "n1";
  failure.kind = FailureKind::kNodeSilent;
  failure.blamed = Blamed::kNode;
  failure.cause = failure.operation = failure.peer = kSecret;
  SummaryRecord summary;
  summary.steps = 12;
  const std::vector<LedgerEntry> entries = {
      std::vector<NodeRecord>{{"n1", "user", "cpu", 2, 1, kSecret}},
      PlanRecord{kSecret, 2, 0.5, kSecret},
      LaunchRecord{1, 1011, LaunchOutcome::kRetried, kSecret},
      failure,
      MeasuredRecord{"alpha", profile},
      summary,
      JobEnd{JobState::kFailed, 5, 1040, kSecret}};
  std::int64_t number = 0;
  for (const LedgerEntry& entry : entries) {
    const auto done = store.Record(*id, {++number, entry});
    if (!done) return done.error().message;
  }
  return "stored as " + std::to_string(*id);
}

/// All that a user gets to see, as the service says it.
std::string AllThatIsSeen(StoreConnection& connection) {
  std::string seen = Said(connection, ToText(store_request::Hello{}));
  JobQuery named;
  named.all_users = true;
  named.ids = {{false, 77, std::nullopt}, {true, 1, std::nullopt}};
  JobQuery anns;
  anns.users = {std::to_string(kAnn), "root", "ann"};
  ProfileQuery profile{"alpha", {"n1", "n2"}, {"cpu"}, "model", 1.9e9};
  const std::vector<StoreRequest> requests = {
      store_request::FindJobs{EveryJob()},    store_request::FindJobs{named},
      store_request::FindJobs{anns},          store_request::FailuresOf{1},
      store_request::LaunchesOf{1},           store_request::ProfileOf{profile},
      store_request::MeasurementsOf{"alpha"}, store_request::MeasuredClusters{}};
  for (const StoreRequest& request : requests) seen += "\n" + Said(connection, ToText(request));
  return seen;
}

/// What is seen, without what becomes less as time passes.
std::string WithoutAges(const std::string& seen) {
  return std::regex_replace(seen, std::regex(R"re("(failures|within_s)":[-+.e0-9]+)re"), "");
}

class PrivacyTest : public ServiceTest {
 protected:
  std::string SeenBy(uid_t uid) const {
    return As(uid, [&](RemoteStore&) {
      StoreConnection connection = RawConnection(Service());
      return AllThatIsSeen(connection);
    });
  }
  const std::string uid_ = NewRunUid();
};

TEST_F(PrivacyTest, AnotherSeesSpeedsAndCountsAndNothingElse) {
  Start();
  ASSERT_EQ(As(kAnn, [&](RemoteStore& store) { return StoreAnnsJob(store, uid_); }), "stored as 1");
  const std::string anns = SeenBy(kAnn), bobs = SeenBy(kBob);
  EXPECT_THAT(anns, HasSubstr("\"user\":\"" + std::to_string(kAnn) + "\""));
  EXPECT_THAT(anns, HasSubstr("\"layer\":\"anns-secret\""));
  EXPECT_THAT(anns, HasSubstr("\"operation\":\"anns-secret\""));
  EXPECT_THAT(bobs, Not(HasSubstr(kSecret)));
  EXPECT_THAT(bobs, Not(HasSubstr(uid_)));
  EXPECT_THAT(bobs, Not(HasSubstr(std::to_string(kAnn))));
  EXPECT_THAT(bobs, HasSubstr("\"from\":\"n1\",\"to\":\"n2\""));
  EXPECT_THAT(bobs, HasSubstr("unconfirmed"));
  EXPECT_THAT(bobs, Not(HasSubstr("node_silent"))) << "one user alone blames no node for others";
}

TEST_F(PrivacyTest, ANodeThatFailedThreeUsersCountsForAll) {
  Start();
  const auto history = [&](uid_t reader) {
    return As(reader, [](RemoteStore& store) -> std::string {
      const auto profile = store.ProfileOf({"alpha", {"n1", "n2"}, {"cpu"}, "", 1.9e9});
      if (!profile) return profile.error().message;
      return profile->nodes.empty() ? "none" : Describe(profile->nodes.at(0));
    });
  };
  const auto fails = [&](uid_t owner) {
    ASSERT_THAT(As(owner, [&](RemoteStore& store) { return StoreAnnsJob(store, NewRunUid()); }),
                HasSubstr("stored as "));
  };
  fails(kAnn), fails(kAnn), fails(kAnn), fails(kAnn), fails(kBob);
  EXPECT_EQ(history(kAnn), "n1: silent 4 times in the last day");
  EXPECT_EQ(history(kBob), "n1: silent once in the last day");
  EXPECT_EQ(history(kBob + 2), "none");
  fails(kBob + 1);
  EXPECT_EQ(history(kBob + 2), "n1: silent 3 times in jobs of 3 users in the last day");
  EXPECT_EQ(history(kAnn), "n1: silent 6 times in jobs of 3 users in the last day");
}

TEST_F(PrivacyTest, NobodysClockMakesHisReportsYounger) {
  Start();
  const double before = EpochSecondsNow();
  ASSERT_EQ(As(kAnn,
               [](RemoteStore& store) {
                 Profile profile;
                 profile.links = {{"n1", "n2", 1e-4, 100, {1, 0, 1e300}}};
                 profile.devices = {{"x1", "cpu", 1, 1, {1, 0, 1}}, {"n1", "cpu", 1, 1, {1, 0, 1}}};
                 const auto saved = store.SaveMeasurements("alpha", profile);
                 return saved ? "saved" : saved.error().message;
               }),
            "saved");
  const auto told = As(kBob, [](RemoteStore& store) -> std::string {
    // Nor does the clock of one who asks.
    const auto profile = store.ProfileOf({"alpha", {"n1", "n2"}, {"cpu"}, "", -1e9});
    if (!profile || profile->links.size() != 1 || profile->devices.size() != 1) return "not one";
    return fmt::format("{}", profile->links[0].evidence.measured_at);
  });
  EXPECT_GE(std::stod(told), before) << "x1 is no node of this job, and nobody confirms it";
  EXPECT_LE(std::stod(told), EpochSecondsNow());
}

TEST_F(PrivacyTest, OneUserMovesNoFigureThatThreeOthersAgreeOn) {
  Start();
  const auto save = [](double rate) {
    return [rate](RemoteStore& store) {
      Profile profile;
      profile.links = {{"n1", "n2", 1e-4, rate, {1, 0, 1.9e9}}};
      profile.devices = {{"n1", "cpu", rate, rate, {1, 0, 1.9e9}}};
      const auto saved = store.SaveMeasurements("alpha", profile);
      return saved ? "saved" : saved.error().message;
    };
  };
  for (const auto& [user, rate] : {std::pair<uid_t, double>{kAnn, 100}, {kAnn, 102}, {kBob, 101}})
    ASSERT_EQ(As(user, save(rate)), "saved");
  const auto told = [&] {
    return As(kBob + 9, [](RemoteStore& store) -> std::string {
      const auto profile = store.ProfileOf({"alpha", {"n1", "n2"}, {"cpu"}, "", 1.9e9});
      if (!profile || profile->links.size() != 1 || profile->devices.size() != 1) return "not one";
      const LinkMeasurement& link = profile->links[0];
      const DeviceMeasurement& device = profile->devices[0];
      return fmt::format("{} {}, {} {}", link.bytes_per_second, NameOf(link.evidence.trust),
                         device.product_flops, NameOf(device.evidence.trust));
    });
  };
  EXPECT_EQ(told(), "101 unconfirmed, 101 unconfirmed");
  ASSERT_EQ(As(kBob + 1, save(1e6)), "saved");
  EXPECT_EQ(told(), "101 known, 101 known") << "of 101, 101 and a lie the median stays";
  ASSERT_EQ(As(kBob + 1, save(1e-6)), "saved");
  EXPECT_EQ(told(), "101 disputed, 101 disputed") << "without an honest one it would be the lie";
  ASSERT_EQ(As(kBob + 2, save(100)), "saved");
  ASSERT_EQ(As(kBob + 3, save(101)), "saved");
  EXPECT_EQ(told(), "101 known, 101 known");
}

TEST_F(PrivacyTest, OperatorsSeeJobsOfAllAndWriteToNone) {
  Start({"--operators", "root," + std::to_string(kBob)});
  ASSERT_EQ(As(kAnn, [&](RemoteStore& store) { return StoreAnnsJob(store, uid_); }), "stored as 1");
  const std::string bobs = SeenBy(kBob);
  EXPECT_THAT(bobs, HasSubstr("\"name\":\"anns-secret\""));
  EXPECT_THAT(bobs, HasSubstr("\"operation\":\"anns-secret\""));
  EXPECT_THAT(bobs, Not(HasSubstr("\"layer\":\"anns-secret\"")))
      << "layers are for one's own plans";
  EXPECT_THAT(As(kBob,
                 [](RemoteStore& store) {
                   const auto done = store.Record(1, {9, PlanRecord{}});
                   return done ? "written" : done.error().message;
                 }),
              HasSubstr("job 1 is not in the store"));
}

TEST_F(PrivacyTest, CoordinatorsSeeTheJobsOfTheirAccountsAndWriteToNone) {
  Start({"--coordinators", "physics:" + std::to_string(kBob) + ",arts:61003"});
  const auto begins = [](uid_t uid, const char* account) {
    return [=](RemoteStore& store) -> std::string {
      JobRecord job = SampleJob(kSecret);
      job.account = account;
      const auto id = store.BeginJob(job);
      if (!id) return id.error().message;
      FailureRecord failure;
      failure.cause = std::to_string(uid);
      const auto done = store.Record(*id, {1, failure});
      return done ? std::to_string(*id) : done.error().message;
    };
  };
  ASSERT_EQ(As(kAnn, begins(kAnn, "physics")), "1");
  ASSERT_EQ(As(kAnn, begins(kAnn, "")), "2");
  ASSERT_EQ(As(kAnn, begins(kAnn, "phys")), "3");
  ASSERT_EQ(As(kBob, begins(kBob, "arts")), "4");
  const auto sees = [&](uid_t uid) {
    return As(uid, [](RemoteStore& store) -> std::string {
      std::string ids;
      JobQuery newest = EveryJob();
      newest.newest = 50;
      JobQuery named = EveryJob();
      named.ids = {{true, 1, std::nullopt}, {true, 2, std::nullopt}, {true, 4, std::nullopt}};
      for (const JobQuery& query : {EveryJob(), newest, named}) {
        const auto rows = store.FindJobs(query);
        if (!rows) return rows.error().message;
        for (const JobRow& row : *rows) ids += std::to_string(row.id);
        ids += ' ';
      }
      for (const std::int64_t id : {1, 2, 3, 4})
        if (const auto failures = store.FailuresOf(id); failures && failures->size() == 1)
          ids += std::to_string(id);
      return ids;
    });
  };
  EXPECT_EQ(sees(kAnn), "123 123 12 123");
  EXPECT_EQ(sees(kBob), "14 14 14 14");
  EXPECT_EQ(sees(61003), "4 4 4 4");
  EXPECT_EQ(sees(61004), "   ");
  EXPECT_THAT(As(kBob,
                 [](RemoteStore& store) {
                   const auto done = store.Record(1, {9, PlanRecord{}});
                   return done ? "written" : done.error().message;
                 }),
              HasSubstr("job 1 is not in the store"));
}

TEST_F(PrivacyTest, NobodyWritesToAnothersJob) {
  Start();
  ASSERT_EQ(As(kAnn, [&](RemoteStore& store) { return StoreAnnsJob(store, uid_); }), "stored as 1");
  const std::string before = WithoutAges(SeenBy(kAnn));
  const std::string refusals = As(kBob, [&](RemoteStore& store) {
    std::string said;
    const auto add = [&](const auto& done) {
      said += done ? "done\n" : done.error().message + "\n";
    };
    add(store.Record(1, {9, PlanRecord{"bobs", 9, 9, "bobs"}}));
    add(store.Record(2, {9, PlanRecord{"bobs", 9, 9, "bobs"}}));
    add(store.FoundOut(1, JobState::kFailed, {JobState::kCompleted, 1, "bobs", "bobs"}));
    RunLedger ledger{SampleJob("bobs"), {{9, PlanRecord{"bobs", 9, 9, "bobs"}}}};
    ledger.job.uid = uid_;
    add(store.TakeIn(ledger));
    JobRecord same = SampleJob("bobs");
    same.uid = uid_;
    add(store.BeginJob(same));
    return said;
  });
  EXPECT_THAT(refusals, Not(HasSubstr("done")));
  EXPECT_THAT(refusals, HasSubstr("job 1 is not in the store\n"));
  EXPECT_THAT(refusals, HasSubstr("job 2 is not in the store\n"));
  EXPECT_THAT(refusals, HasSubstr("this ledger's run is another user's"));
  EXPECT_EQ(WithoutAges(SeenBy(kAnn)), before);
}

TEST_F(PrivacyTest, LayersAreMergedWithOnesOwn) {
  Start();
  const auto save = [](double seconds) {
    return [seconds](RemoteStore& store) {
      Profile profile;
      profile.layers = {{"cpu", "model", "block", 2, seconds, 0.2, 0, 0, 0, {1, 0, 1.9e9}}};
      const auto saved = store.SaveMeasurements("alpha", profile);
      return saved ? "saved" : saved.error().message;
    };
  };
  ASSERT_EQ(As(kAnn, save(0.1)), "saved");
  ASSERT_EQ(As(kBob, save(0.4)), "saved");
  const auto seen = [](RemoteStore& store) {
    const auto profile = store.ProfileOf({"alpha", {}, {"cpu"}, "model", 1.9e9});
    return profile && profile->layers.size() == 1 ? std::to_string(profile->layers[0].forward_s)
                                                  : "none, or several";
  };
  EXPECT_EQ(As(kAnn, seen), std::to_string(0.1));
  EXPECT_EQ(As(kBob, seen), std::to_string(0.4));
}

TEST_F(PrivacyTest, WhoIsNobodyInParticularIsRefused) {
  Start();
  EXPECT_THAT(As(65534, [](RemoteStore&) { return "let in"; }),
              HasSubstr("uid 65534 stands for users that this host does not know"));
}

}  // namespace
}  // namespace adaptive_train::privacy_test
