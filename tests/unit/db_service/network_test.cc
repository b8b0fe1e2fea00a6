// Users of other hosts at the service: who munge says they are.

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <thread>

#include "core/token_proof.h"
#include "db/migration.h"
#include "db/open_database.h"
#include "db/sealed_frames.h"
#include "db/service/store_service.h"
#include "tests/unit/db_service/network_fixture.h"

namespace adaptive_train::network_test {
namespace {

using ::testing::HasSubstr;

TEST_F(NetworkTest, EachSeesHisOwnAsByTheLocalSocket) {
  StartTcp();
  auto own = RemoteStore::Open(Remote());
  ASSERT_TRUE(own) << own.error().message;
  EXPECT_TRUE(own->BeginJob(SampleJob("roots")));
  const auto store_one = [](RemoteStore& store) {
    const auto id = store.BeginJob(SampleJob("anns"));
    return id ? JobsSeen(store) : id.error().message;
  };
  EXPECT_EQ(RemotelyAs(kAnn, store_one), "anns ");
  EXPECT_EQ(RemotelyAs(kBob, JobsSeen), "");
  EXPECT_EQ(As(kAnn, JobsSeen), "anns ");
  EXPECT_EQ(JobsSeen(*own), "roots anns ") << "root is an operator";
}

TEST_F(NetworkTest, LongRecordsPassWhole) {
  StartTcp();
  auto store = RemoteStore::Open(Remote());
  ASSERT_TRUE(store) << store.error().message;
  JobRecord job = SampleJob();
  job.config = std::string(8 << 20, 'c');
  ASSERT_TRUE(store->BeginJob(job));
  const auto rows = store->FindJobs(EveryJob());
  ASSERT_TRUE(rows) << rows.error().message;
  EXPECT_EQ(rows->at(0).job.config, job.config);
}

TEST_F(NetworkTest, WhyALongRequestIsRefusedIsHeard) {
  StartTcp({"--mib-a-day", "1"});
  auto store = RemoteStore::Open(Remote());
  ASSERT_TRUE(store) << store.error().message;
  JobRecord job = SampleJob();
  job.config = std::string(8 << 20, 'c');
  const auto refused = store->BeginJob(job);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("you have sent 1 MiB of requests within a day"));
}

TEST_F(NetworkTest, StrangersHaveAShareAndTheOldestGivesWay) {
  RaiseFileLimit();
  StartTcp();
  std::vector<std::unique_ptr<RawSocket>> strangers;
  for (int i = 0; i < 600; ++i) strangers.push_back(std::make_unique<RawSocket>(Remote()));
  EXPECT_EQ(RemotelyAs(kAnn, JobsSeen), "");
  EXPECT_EQ(As(kBob, JobsSeen), "");
}

TEST_F(NetworkTest, AServiceThatIsNotThereOrHasNoAddressIsOneLine) {
  const auto refused = RemoteStore::Open(Remote());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "profile store tcp:" + Remote().address + ": cannot connect: Connection refused");
  StoreLocation nowhere = Remote();
  nowhere.address = "no-such-host.invalid:6822";
  const auto unknown = RemoteStore::Open(nowhere);
  ASSERT_FALSE(unknown);
  EXPECT_THAT(unknown.error().message, HasSubstr("no address is known of no-such-host.invalid"));
}

TEST_F(NetworkTest, AServiceOfAnotherUserIsNotSpokenTo) {
  StartTcp();
  StoreLocation other = Remote();
  other.service = kAnn;  // whom root's service is not: it cannot decode the offer
  const auto refused = RemoteStore::Open(other);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("munge: Unauthorized credential"));
}

TEST_F(NetworkTest, AServiceOfAnotherNameIsNotSpokenTo) {
  StartTcp();
  StoreLocation other = Remote();
  other.address = "localhost:" + std::to_string(port_);
  const auto refused = RemoteStore::Open(other);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("you look for adaptive-traind at localhost:"));
}

TEST_F(NetworkTest, AMungedThatHangsCostsTheBudgetAndHarmsNobodyHere) {
  StartTcp();
  munged_.Signal(SIGSTOP);
  const auto began = std::chrono::steady_clock::now();
  const auto late =
      RemoteStore::Open(Remote(), {std::chrono::seconds(60), true, std::chrono::milliseconds(100)});
  const auto took = std::chrono::steady_clock::now() - began;
  ASSERT_FALSE(late);
  EXPECT_THAT(late.error().message, HasSubstr("munged does not answer in time"));
  EXPECT_LT(took, std::chrono::seconds(5));
  for (int i = 0; i < 20; ++i) RawSocket(Remote()).Send("MUNGE:");
  EXPECT_EQ(As(kAnn, JobsSeen), "");
  munged_.Signal(SIGCONT);
  EXPECT_EQ(RemotelyAs(kAnn, JobsSeen), "");
}

TEST_F(NetworkTest, ASessionThatHasLastedIsMadeAnew) {
  auto opened = OpenDatabase(Location(), kBusyTimeout, true, SchemaMigrations());
  ASSERT_TRUE(opened) << opened.error().message;
  RequestWriter writer(std::move(*opened), {}, [](const LogLine&) {});
  RequestReaders readers(Location().path, 1);
  boost::asio::io_context io(1);
  StoreService::Settings settings;
  settings.socket = Service().path;
  settings.database = Location().path;
  settings.log = [](const LogLine&) {};
  settings.tcp = ServiceName{Remote().address, munged_.Socket()};
  settings.tcp_listen = "127.0.0.1";
  settings.limits.age = std::chrono::milliseconds(200);
  auto service = StoreService::Listen(io, settings, readers, writer);
  ASSERT_TRUE(service) << service.error().message;
  std::thread serving([&] { io.run(); });
  {
    auto connection = StoreConnection::Open(Remote(), Soon());
    ASSERT_TRUE(connection) << connection.error().message;
    EXPECT_THAT(Said(*connection, ToText(store_request::Hello{})), HasSubstr("welcome"));
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    EXPECT_THAT(Said(*connection, ToText(store_request::MeasuredClusters{})),
                HasSubstr("clusters"));
    EXPECT_THAT(Said(*connection, ToText(store_request::MeasuredClusters{})),
                HasSubstr("the connection is lost"));
    auto store = RemoteStore::Open(Remote());
    ASSERT_TRUE(store) << store.error().message;
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(store->BeginJob(SampleJob()));
      std::this_thread::sleep_for(std::chrono::milliseconds(250));
    }
  }
  boost::asio::post(io, [&] { (*service)->Stop(); });
  serving.join();
}

TEST(SealedFramesTest, EachDirectionHasItsOwnKeyAndCount) {
  const SessionOffer offer{"ctl:6822", NewNonce(), NewNonce(), NewNonce()};
  SealedFrames client(offer, SealedFrames::End::kClient);
  SealedFrames service(offer, SealedFrames::End::kService);
  for (const std::string& text : {std::string(), std::string("a"), std::string(100000, 'x')}) {
    EXPECT_EQ(service.Open(client.Seal(text)).value(), text);
    EXPECT_EQ(client.Open(service.Seal(text)).value(), text);
  }
  EXPECT_NE(client.Seal("same"), client.Seal("same"));
  EXPECT_NE(client.Seal("same"), service.Seal("same"));
  EXPECT_FALSE(client.Open("short"));
  EXPECT_FALSE(client.Open(service.Seal("after an error")));
}

}  // namespace
}  // namespace adaptive_train::network_test
