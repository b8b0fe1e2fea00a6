// Stored measurements come back: merged, for the requested nodes and kinds, with the nodes'
// failures.

#include <cmath>
#include <limits>
#include <optional>

#include "db/database.h"
#include "db/outages.h"
#include "tests/unit/db/store_fixture.h"

namespace adaptive_train::profile_rows_test {
namespace {

constexpr double kNow = 2e9;
constexpr double kHalfLife = kFailureHalfLifeDays * 86400;

class ProfileRowsTest : public StoreTest {
 protected:
  ProfileRowsTest() {
    auto opened = FileStore::Open(Location());
    if (!opened) throw std::runtime_error(opened.error().message);
    store_.emplace(std::move(*opened));
  }
  void Save(const Profile& profile, const std::string& cluster = "alpha") {
    const auto saved = store_->SaveMeasurements(cluster, profile);
    EXPECT_TRUE(saved) << saved.error().message;
  }
  Profile Find(const ProfileQuery& query) {
    auto profile = store_->ProfileOf(query);
    EXPECT_TRUE(profile) << profile.error().message;
    return profile.value_or(Profile{});
  }
  void Failed(const std::string& host, double time, const std::string& cluster = "alpha",
              FailureKind kind = FailureKind::kNodeSilent, const std::string& peer = "") {
    JobRecord job = SampleJob();
    job.cluster = cluster;
    const auto id = store_->BeginJob(job);
    ASSERT_TRUE(id);
    FailureRecord failure;
    failure.time = time;
    failure.host = host;
    failure.kind = kind;
    failure.peer_host = peer;
    failure.blamed = BlamedFor(kind, true);
    ASSERT_TRUE(store_->Record(*id, {1, failure}));
  }

  std::optional<FileStore> store_;
};

LinkMeasurement Link(const std::string& from, const std::string& to, double rate) {
  return {from, to, 1e-4, rate, {1, 0.05, kNow}};
}

ProfileQuery Query(std::vector<std::string> nodes) {
  return {"alpha", std::move(nodes), {"cpu"}, "model", kNow};
}

TEST_F(ProfileRowsTest, AllFiguresComeBackAsTheyWereStored) {
  Profile profile;
  profile.links = {{"n1", "n2", 2e-4, 5e6, {3, 0.1, 1234.5}}};
  profile.devices = {{"n1", "cpu", 1.5e11, 8e9, {2, 0.2, 99.25}, 1.5e-9}};
  profile.layers = {{"cpu", "model", "block", 4, 0.5, 1.0, 0.4, 0.25, 0.125, {5, 0.3, 77}}};
  Save(profile);
  const Profile found = Find(Query({"n1", "n2"}));
  ASSERT_EQ(found.links.size(), 1u);
  EXPECT_EQ(found.links[0].from, "n1");
  EXPECT_EQ(found.links[0].to, "n2");
  EXPECT_EQ(found.links[0].latency_s, 2e-4);
  EXPECT_EQ(found.links[0].bytes_per_second, 5e6);
  EXPECT_EQ(found.links[0].evidence.count, 3);
  EXPECT_EQ(found.links[0].evidence.spread, 0.1);
  EXPECT_EQ(found.links[0].evidence.measured_at, 1234.5);
  ASSERT_EQ(found.devices.size(), 1u);
  EXPECT_EQ(found.devices[0].node, "n1");
  EXPECT_EQ(found.devices[0].product_flops, 1.5e11);
  EXPECT_EQ(found.devices[0].bytes_per_second, 8e9);
  EXPECT_EQ(found.devices[0].evidence.measured_at, 99.25);
  EXPECT_EQ(found.devices[0].transfer_s_per_byte, 1.5e-9);
  ASSERT_EQ(found.layers.size(), 1u);
  EXPECT_EQ(found.layers[0].layer, "block");
  EXPECT_EQ(found.layers[0].micro_batch, 4);
  EXPECT_EQ(found.layers[0].forward_s, 0.5);
  EXPECT_EQ(found.layers[0].backward_s, 1.0);
  EXPECT_EQ(found.layers[0].weight_gradients_s, 0.4);
  EXPECT_EQ(found.layers[0].update_s, 0.25);
  EXPECT_EQ(found.layers[0].gradient_variance, 0.125);
  EXPECT_EQ(found.layers[0].evidence.count, 5);
}

TEST_F(ProfileRowsTest, OnlyWhatWasAskedForComesBack) {
  Profile profile;
  profile.links = {Link("n1", "n2", 1), Link("n2", "n1", 2), Link("n1", "n3", 3),
                   Link("n1", "n1", 4)};
  profile.devices = {{"n1", "cpu", 1, 1, {1, 0, 1}},
                     {"n9", "cpu", 1, 1, {1, 0, 1}},
                     {"n1", "other", 1, 1, {1, 0, 1}}};
  profile.layers = {{"cpu", "model", "block", 1, 1, 1, 0, 0, 0, {1, 0, 1}},
                    {"cpu", "another", "block", 1, 1, 1, 0, 0, 0, {1, 0, 1}},
                    {"other", "model", "block", 1, 1, 1, 0, 0, 0, {1, 0, 1}}};
  Save(profile);
  Save(profile, "beta");
  const Profile found = Find(Query({"n1", "n2"}));
  EXPECT_EQ(found.links.size(), 3u);
  EXPECT_EQ(found.devices.size(), 2u) << "of the kind, whatever the node";
  EXPECT_EQ(found.layers.size(), 1u);
  ProfileQuery without_model = Query({"n1"});
  without_model.model_key.clear();
  EXPECT_TRUE(Find(without_model).layers.empty());
}

TEST_F(ProfileRowsTest, ASecondMeasurementIsMerged) {
  Save({{Link("n1", "n2", 100)}, {}, {}, {}});
  Save({{Link("n1", "n2", 104)}, {}, {}, {}});
  const Profile agreed = Find(Query({"n1", "n2"}));
  EXPECT_DOUBLE_EQ(agreed.links.at(0).bytes_per_second, 102);
  EXPECT_EQ(agreed.links.at(0).evidence.count, 2);
  Save({{Link("n1", "n2", 30)}, {}, {}, {}});
  const Profile replaced = Find(Query({"n1", "n2"}));
  EXPECT_EQ(replaced.links.at(0).bytes_per_second, 30);
  EXPECT_EQ(replaced.links.at(0).evidence.count, 1);
}

TEST_F(ProfileRowsTest, FiguresThatCannotBeAreRefusedAndNothingIsStored) {
  for (double bad : {0.0, -1.0, std::numeric_limits<double>::infinity(),
                     std::numeric_limits<double>::quiet_NaN()}) {
    const auto saved = store_->SaveMeasurements(
        "alpha", {{Link("n1", "n2", 5), Link("n2", "n1", bad)}, {}, {}, {}});
    ASSERT_FALSE(saved);
    EXPECT_EQ(saved.error().exit_code, ExitCode::kStore);
    EXPECT_NE(saved.error().message.find("link n2 to n1"), std::string::npos);
  }
  LinkMeasurement unfounded = Link("n1", "n2", 5);
  unfounded.evidence.count = 0;
  EXPECT_FALSE(store_->SaveMeasurements("alpha", {{unfounded}, {}, {}, {}}));
  EXPECT_TRUE(Find(Query({"n1", "n2"})).links.empty());
}

TEST_F(ProfileRowsTest, RowsChangedByHandAreLeftOut) {
  Save({{Link("n1", "n2", 5), Link("n2", "n1", 6)}, {}, {}, {}});
  Database(Location().path.string())
      .Run("UPDATE link_profiles SET bytes_per_second = -1 WHERE from_node = 'n1'");
  const Profile found = Find(Query({"n1", "n2"}));
  ASSERT_EQ(found.links.size(), 1u);
  EXPECT_EQ(found.links[0].from, "n2");
  Save({{Link("n1", "n2", 7)}, {}, {}, {}});
  EXPECT_EQ(Find(Query({"n1", "n2"})).links.at(0).bytes_per_second, 7);
}

TEST_F(ProfileRowsTest, FailuresOfANodeFadeWithTheirAge) {
  Failed("n1", kNow);
  Failed("n1", kNow - kHalfLife);
  Failed("n2", kNow - 2 * kHalfLife);
  Failed("n2", kNow, "beta");
  Failed("n3", kNow - 50 * kHalfLife);
  Failed("n4", kNow, "alpha",
         FailureKind::kKilled);  // a process's, which says nothing about the node
  const Profile found = Find(Query({"n1", "n2", "n3", "n4"}));
  ASSERT_EQ(found.nodes.size(), 2u);
  EXPECT_EQ(found.nodes[0].node, "n1");
  EXPECT_NEAR(found.nodes[0].failures, 1.5, 1e-9);
  EXPECT_EQ(found.nodes[1].node, "n2");
  EXPECT_NEAR(found.nodes[1].failures, 0.25, 1e-9);
}

TEST_F(ProfileRowsTest, AnOutageCountsUnlessAFailureOfItsTimeDoes) {
  {
    Database database(Location().path);
    for (const double hours_ago : {1.0, 1.5, 30.0})  // the first two are one
      NoteOutage(database, "alpha", "n1", kNow - hours_ago * 3600);
    NoteOutage(database, "alpha", "n2", kNow - kHalfLife);
    NoteOutage(database, "beta", "n3", kNow);
  }
  Failed("n1", kNow - 1.2 * 3600);
  const Profile found = Find(Query({"n1", "n2", "n3"}));
  ASSERT_EQ(found.nodes.size(), 2u);
  EXPECT_EQ(Describe(found.nodes[0]),
            "n1: silent once, down by Slurm's word once in the last 2 days");
  EXPECT_EQ(Describe(found.nodes[1]), "n2: down by Slurm's word once in the last 14 days");
  EXPECT_NEAR(found.nodes[1].failures, 0.5, 1e-9);
}

TEST_F(ProfileRowsTest, FailuresAreCountedByKindWithTheAgeOfTheOldest) {
  Failed("n1", kNow - 9.5 * 86400);
  Failed("n1", kNow - 86400);
  Failed("n1", kNow - 86400, "alpha", FailureKind::kOutOfMemory);
  Failed("n1", kNow - 86400, "alpha", FailureKind::kSlow);
  for (const auto kind : {FailureKind::kDiskFull, FailureKind::kConfiguration,
                          FailureKind::kCrashed, FailureKind::kInjected})
    Failed("n1", kNow, "alpha", kind);
  const Profile found = Find(Query({"n1"}));
  ASSERT_EQ(found.nodes.size(), 1u);
  EXPECT_EQ(Describe(found.nodes[0]),
            "n1: silent twice, out of memory once, slow once in the last 10 days");
  ProfileQuery query = Query({"n1"});
  query.failure_half_life_s = 86400;
  EXPECT_NEAR(Find(query).nodes[0].failures, std::exp2(-9.5) + 3 * 0.5, 1e-9);
}

TEST_F(ProfileRowsTest, ALostLinkCountsAgainstThePairAndNotItsEnds) {
  Failed("n1", kNow, "alpha", FailureKind::kLinkLost, "n2");
  Failed("n2", kNow - kHalfLife, "alpha", FailureKind::kLinkLost, "n1");
  Failed("n1", kNow, "alpha", FailureKind::kLinkLost, "n9");
  const Profile found = Find(Query({"n1", "n2", "n3"}));
  EXPECT_TRUE(found.nodes.empty());
  ASSERT_EQ(found.lost_links.size(), 1u);
  EXPECT_NEAR(found.lost_links[0].failures, 1.5, 1e-9);
  EXPECT_EQ(Describe(found.lost_links[0]), "link n1 to n2: lost twice in the last 14 days");
}

TEST_F(ProfileRowsTest, EverythingOfAClusterAndWhichThereAre) {
  Profile profile;
  profile.links = {Link("n1", "n2", 1), Link("n3", "n3", 2)};
  profile.devices = {{"n1", "cpu", 1, 1, {1, 0, 1}}, {"n1", "other", 1, 1, {1, 0, 1}}};
  Save(profile);
  Save({{Link("m1", "m2", 1)}, {}, {}, {}}, "beta");
  const auto found = store_->MeasurementsOf("alpha");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->links.size(), 2u);
  EXPECT_EQ(found->devices.size(), 2u);
  EXPECT_EQ(store_->MeasuredClusters(), (std::vector<std::string>{"alpha", "beta"}));
  EXPECT_TRUE(store_->MeasurementsOf("gamma")->links.empty());
}

}  // namespace
}  // namespace adaptive_train::profile_rows_test
