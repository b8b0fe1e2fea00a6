// The control channel's server against real sockets: strangers, late ranks, garbage, silence.
#include "launcher/steps/control_server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>

#include "core/file_limit.h"
#include "core/token_proof.h"
#include "runtime/control/control_channel.h"
#include "runtime/control/find_launcher.h"

namespace adaptive_train::control_server_test {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using Clock = std::chrono::steady_clock;

constexpr char kToken[] = "the-token-of-this-attempt";

struct Seen {
  std::vector<int> hellos, ready, closed, silent;
};

class ControlServerTest : public testing::Test {
 protected:
  void SetUp() override { Listen(2); }
  void Listen(int ranks, PortRange ports = {}) {
    ControlServer::Events events;
    events.on_hello = [this](const Hello& hello) { seen_.hellos.push_back(hello.rank); };
    events.on_message = [this](int rank, const ControlMessage& message) {
      if (std::holds_alternative<Ready>(message)) seen_.ready.push_back(rank);
    };
    events.on_closed = [this](int rank, const std::string&) { seen_.closed.push_back(rank); };
    events.on_silent = [this](int rank) { seen_.silent.push_back(rank); };
    ControlServer::Settings settings;
    settings.ranks = ranks;
    settings.ports = ports;
    settings.deadlines.rank_silence = silence_;
    settings.token = kToken;
    server_.reset();
    auto server = ControlServer::Listen(io_, settings, std::move(events));
    ASSERT_TRUE(server) << server.error().message;
    server_ = std::move(*server);
  }
  tcp::endpoint Endpoint() const {
    const std::string& addresses = server_->Addresses();
    const auto port = std::stoi(addresses.substr(addresses.rfind(':') + 1));
    return {asio::ip::address_v4::loopback(), static_cast<unsigned short>(port)};
  }
  std::string Loopback() const { return "127.0.0.1:" + std::to_string(Endpoint().port()); }
  tcp::socket Connect() {
    tcp::socket socket(client_io_);
    socket.connect(Endpoint());
    return socket;
  }
  void Serve(std::chrono::milliseconds time = std::chrono::milliseconds(100)) {
    io_.restart();
    io_.run_for(time);
  }
  bool ServeUntil(const std::function<bool()>& done) {
    for (const auto give_up = Clock::now() + std::chrono::seconds(60); Clock::now() < give_up;) {
      if (done()) return true;
      Serve(std::chrono::milliseconds(10));
    }
    return false;
  }
  static void Say(tcp::socket& socket, const ControlMessage& message) {
    asio::write(socket, asio::buffer(EncodeFrame(message)));
  }
  /// The next message that is no heartbeat.
  ControlMessage Hear(tcp::socket& socket, FrameReader& reader) {
    for (;;) {
      auto message = reader.Next();
      EXPECT_TRUE(message);
      if (*message && std::holds_alternative<Heartbeat>(**message)) continue;
      if (*message) return std::move(**message);
      Serve(std::chrono::milliseconds(20));
      char block[1024];
      boost::system::error_code error;
      const auto n = socket.read_some(asio::buffer(block), error);
      if (error) return Abort{error.message()};
      reader.Feed(std::string_view(block, n));
    }
  }
  /// What a rank says that knows `token`.
  static Hello Answer(const Challenge& challenge, const std::string& token, int rank) {
    Hello hello{rank, "h", 1, "", NewNonce(), ""};
    hello.proof = ProofOf(token, challenge, hello);
    return hello;
  }
  /// A connection that has said its hello.
  tcp::socket Greet(int rank, const std::string& token = kToken) {
    tcp::socket socket = Connect();
    FrameReader reader;
    const auto challenge = Hear(socket, reader);
    Say(socket, Answer(std::get<Challenge>(challenge), token, rank));
    return socket;
  }
  /// The server has closed it.
  static bool Dropped(tcp::socket& socket) {
    socket.non_blocking(true);
    char block[1024];
    boost::system::error_code error;
    while (!error) socket.read_some(asio::buffer(block), error);
    return error != asio::error::would_block;
  }

  asio::io_context io_, client_io_;
  Seen seen_;
  std::chrono::milliseconds silence_ = kRankSilenceLimit;
  std::unique_ptr<ControlServer> server_;
};

TEST_F(ControlServerTest, TakesRanksThatKnowTheToken) {
  auto one = Greet(1);
  Say(one, Ready{});
  Serve();
  EXPECT_EQ(seen_.hellos, std::vector<int>{1});
  EXPECT_EQ(seen_.ready, std::vector<int>{1});
  EXPECT_TRUE(server_->Connected(1));
  one.close();
  Serve();
  EXPECT_EQ(seen_.closed, std::vector<int>{1});
  EXPECT_FALSE(server_->AnyConnected());
}

TEST_F(ControlServerTest, DropsWhoDoesNotKnowTheTokenOrIsNoRank) {
  const std::pair<int, const char*> strangers[] = {
      {1, "wrong"}, {1, ""}, {2, kToken}, {-1, kToken}};
  for (const auto& [rank, token] : strangers) {
    auto socket = Greet(rank, token);
    Serve();
    EXPECT_TRUE(Dropped(socket)) << rank << " " << token;
  }
  auto hasty = Connect();
  Say(hasty, Ready{});
  Serve();
  EXPECT_TRUE(Dropped(hasty));
  EXPECT_TRUE(seen_.hellos.empty());
  EXPECT_TRUE(seen_.closed.empty());
}

TEST_F(ControlServerTest, AHelloOfAnotherConnectionIsNotBelieved) {
  tcp::socket real = Connect();
  FrameReader reader;
  const auto challenge = std::get<Challenge>(Hear(real, reader));
  const Hello overheard = Answer(challenge, kToken, 1);
  auto replayed = Connect();
  Say(replayed, overheard);
  Serve();
  EXPECT_TRUE(Dropped(replayed));
  EXPECT_FALSE(server_->Connected(1));
  Say(real, overheard);
  Serve();
  EXPECT_TRUE(server_->Connected(1));
}

TEST_F(ControlServerTest, ARankInAnothersNameIsNotBelieved) {
  tcp::socket socket = Connect();
  FrameReader reader;
  Hello hello = Answer(std::get<Challenge>(Hear(socket, reader)), kToken, 1);
  hello.rank = 0;
  Say(socket, hello);
  Serve();
  EXPECT_TRUE(Dropped(socket));
  EXPECT_TRUE(seen_.hellos.empty());
}

TEST_F(ControlServerTest, ASecondConnectionOfARankIsAStranger) {
  auto one = Greet(0);
  Serve();
  auto two = Greet(0);
  Say(two, Ready{});
  Serve();
  EXPECT_EQ(seen_.hellos, std::vector<int>{0});
  EXPECT_TRUE(seen_.ready.empty());
}

TEST_F(ControlServerTest, GarbageOfARankClosesItsConnection) {
  auto one = Greet(0);
  asio::write(one, asio::buffer(std::string("\xff\xff\xff\xffgarbage")));
  Serve();
  EXPECT_EQ(seen_.closed, std::vector<int>{0});
}

TEST_F(ControlServerTest, TalksToItsRanks) {
  auto one = Connect();
  FrameReader reader;
  Say(one, Answer(std::get<Challenge>(Hear(one, reader)), kToken, 0));
  EXPECT_TRUE(std::holds_alternative<Welcome>(Hear(one, reader)));
  server_->SendAll(Stop{});
  server_->Send(1, Go{});  // not connected: nothing happens
  EXPECT_TRUE(std::holds_alternative<Stop>(Hear(one, reader)));
}

TEST_F(ControlServerTest, ARankThatSaysNothingForItsLimitIsTold) {
  silence_ = std::chrono::milliseconds(1000);
  Listen(2);
  auto mute = Greet(0), talker = Greet(1);
  EXPECT_TRUE(ServeUntil([&] {
    Say(talker, Heartbeat{});
    return !seen_.silent.empty();
  }));
  EXPECT_EQ(seen_.silent, std::vector<int>{0});
  EXPECT_TRUE(server_->Connected(0));
}

TEST_F(ControlServerTest, TimeInWhichTheLauncherWasHeldUpIsNoRanksSilence) {
  silence_ = std::chrono::milliseconds(1000);
  Listen(1);
  auto mute = Greet(0);
  Serve();
  std::this_thread::sleep_for(3 * silence_);
  Serve(silence_ / 2);
  EXPECT_TRUE(seen_.silent.empty());
  EXPECT_TRUE(ServeUntil([&] { return !seen_.silent.empty(); }));
}

/// Each tick is 150 ms late: ten turns, were that time left out.
TEST_F(ControlServerTest, ALauncherThatIsALittleLateEachTimeSeesSilenceAllTheSame) {
  silence_ = std::chrono::milliseconds(1000);
  Listen(1);
  auto mute = Greet(0);
  Serve();
  int turns = 0;
  for (; seen_.silent.empty() && turns < 100; ++turns) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    Serve(std::chrono::milliseconds(1));
  }
  EXPECT_LE(turns, 8);
}

TEST_F(ControlServerTest, AStrangerHasLittleTimeWhateverItSays) {
  auto mute = Connect(), talker = Connect();
  const auto give_up = Clock::now() + ControlServer::kGreetingDeadline + std::chrono::seconds(20);
  bool mute_gone = false, talker_gone = false;
  while (!(mute_gone && talker_gone) && Clock::now() < give_up) {
    boost::system::error_code error;
    // The first bytes of a frame, one at a time.
    if (!talker_gone) asio::write(talker, asio::buffer("\0", 1), error);
    Serve(std::chrono::milliseconds(500));
    mute_gone = mute_gone || Dropped(mute);
    talker_gone = talker_gone || error || Dropped(talker);
  }
  EXPECT_TRUE(mute_gone);
  EXPECT_TRUE(talker_gone);
}

TEST_F(ControlServerTest, AStrangerMaySayLittle) {
  auto socket = Connect();
  const std::string long_frame =
      std::string("\0\0\xff\xff", 4) + std::string(kMaxStrangerBytes, ' ');
  asio::write(socket, asio::buffer(long_frame));
  Serve();
  EXPECT_TRUE(Dropped(socket));
}

/// Reads from `from` and writes to `to` what came; keeps a copy.
void Relay(tcp::socket& from, tcp::socket& to, std::string& copy) {
  boost::system::error_code error;
  for (char block[1024]; !error;) {
    const auto n = from.read_some(asio::buffer(block), error);
    if (error) break;
    copy.append(block, n);
    asio::write(to, asio::buffer(block, n), error);
  }
  to.shutdown(tcp::socket::shutdown_send, error);
}

TEST_F(ControlServerTest, TheTokenIsNeverOnTheWireAndATranscriptIsOfNoUse) {
  tcp::acceptor tap(client_io_, {asio::ip::address_v4::loopback(), 0});
  std::string up, down;
  std::thread relay([&] {
    tcp::socket rank = tap.accept(), server = Connect();
    std::thread back([&] { Relay(server, rank, down); });
    Relay(rank, server, up);
    back.join();
  });
  std::atomic<bool> greeted{false}, done{false};
  std::thread rank([&] {
    asio::io_context io;
    auto found = FindLauncher(io, "127.0.0.1:" + std::to_string(tap.local_endpoint().port()),
                              kToken, {1, "h", 1, "", "", ""});
    greeted = found.has_value();
    done = true;
  });
  EXPECT_TRUE(ServeUntil([&] { return done.load(); }));
  rank.join();
  EXPECT_TRUE(greeted);
  EXPECT_TRUE(ServeUntil([&] { return !server_->Connected(1); }));
  relay.join();
  EXPECT_NE(up.find("\"proof\""), std::string::npos);
  EXPECT_EQ(up.find(kToken), std::string::npos);
  EXPECT_EQ(down.find(kToken), std::string::npos);
  auto replayed = Connect();
  asio::write(replayed, asio::buffer(up));
  Serve();
  EXPECT_TRUE(Dropped(replayed));
  EXPECT_EQ(seen_.hellos, std::vector<int>{1});
}

TEST_F(ControlServerTest, AThousandStrangersDoNotKeepRanksOut) {
  constexpr int kRanks = 16, kStrangers = 1000;
  Listen(kRanks);
  ASSERT_GT(RaiseFileLimit(), kStrangers + 200u);
  std::atomic<int> strangers{0}, connected{0}, ended{0};
  std::atomic<bool> over{false};
  std::thread crowd([&] {
    asio::io_context io;
    std::vector<tcp::socket> sockets;
    for (int i = 0; i < kStrangers && !over; ++i) {
      boost::system::error_code error;
      sockets.emplace_back(io).connect(Endpoint(), error);
      ++strangers;
      if (i % 7 == 0) asio::write(sockets.back(), asio::buffer("\0\0\1", 3), error);
    }
    // Who is dropped comes back.
    for (std::size_t i = 0; !over; i = (i + 1) % sockets.size()) {
      boost::system::error_code error;
      sockets[i] = tcp::socket(io);
      sockets[i].connect(Endpoint(), error);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  EXPECT_TRUE(ServeUntil([&] { return strangers == kStrangers; }));
  std::vector<std::thread> ranks;
  std::vector<std::unique_ptr<asio::io_context>> contexts;
  std::vector<FoundLauncher> launchers;
  std::mutex mutex;
  for (int rank = 0; rank < kRanks; ++rank)
    contexts.push_back(std::make_unique<asio::io_context>());
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      asio::io_context& io = *contexts[static_cast<std::size_t>(rank)];
      auto found = FindLauncher(io, Loopback(), kToken, {rank, "h", 1, "", "", ""});
      std::lock_guard lock(mutex);
      if (found) launchers.push_back(std::move(*found)), ++connected;
      ++ended;
    });
  }
  EXPECT_TRUE(ServeUntil([&] { return ended == kRanks; }));
  over = true;
  crowd.join();
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(connected, kRanks);
  for (int rank = 0; rank < kRanks; ++rank) EXPECT_TRUE(server_->Connected(rank)) << rank;
}

TEST_F(ControlServerTest, ARankTriesAgainWhereNobodyListensYet) {
  const std::string address = Loopback();
  const int port = Endpoint().port();
  server_.reset();
  std::atomic<bool> found{false};
  std::thread rank([&] {
    asio::io_context io;
    found = FindLauncher(io, address, kToken, {0, "h", 1, "", "", ""}).has_value();
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  Listen(2, {port, port});
  EXPECT_TRUE(ServeUntil([&] { return found.load(); }));
  rank.join();
}

TEST_F(ControlServerTest, RanksAreToldTheirDeadlines) {
  std::atomic<bool> done{false};
  LaunchDeadlines told;
  std::thread rank([&] {
    asio::io_context io;
    auto found = FindLauncher(io, Loopback(), kToken, {0, "h", 1, "", "", ""});
    if (found) told = found->deadlines;
    done = true;
  });
  EXPECT_TRUE(ServeUntil([&] { return done.load(); }));
  rank.join();
  EXPECT_EQ(told.fence, LaunchDeadlines().fence);
  EXPECT_EQ(told.hello, LaunchDeadlines().hello);
}

TEST_F(ControlServerTest, AllThatARankHasSaidArrivesAtALauncherThatIsHeldUp) {
  constexpr std::size_t kSaid = 3'000, kLength = 3'000;  // more than sockets hold
  std::unique_ptr<ControlChannel> channel;
  std::atomic<bool> connected{false};
  std::thread connects([&] {
    if (auto made = ControlChannel::Connect({Loopback(), kToken, {0, "h", 1, "", "", ""}}))
      channel = std::move(*made);
    connected = true;
  });
  EXPECT_TRUE(ServeUntil([&] { return connected.load(); }));
  connects.join();
  ASSERT_TRUE(channel);
  std::thread leaves([&] {
    for (std::size_t i = 0; i < kSaid; ++i) channel->Send(Notice{std::string(kLength, 'x')});
    channel->Send(Ready{});
    channel.reset();
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  for (int i = 0; i < 10; ++i) server_->Send(0, CheckpointNow{});
  EXPECT_TRUE(ServeUntil([&] { return !server_->Connected(0); }));
  leaves.join();
  EXPECT_EQ(seen_.ready, std::vector<int>{0});
}

/// A program at a launcher's address that answers, but not as this run's launcher.
class Impostor {
 public:
  explicit Impostor(std::string token) : token_(std::move(token)) {
    thread_ = std::thread([this] { Serve(); });
  }
  ~Impostor() { thread_.join(); }
  std::string Address() const {
    return "127.0.0.1:" + std::to_string(acceptor_.local_endpoint().port());
  }

 private:
  void Serve() {
    tcp::socket socket = acceptor_.accept();
    const Challenge challenge{NewNonce()};
    boost::system::error_code error;
    asio::write(socket, asio::buffer(EncodeFrame(challenge)), error);
    FrameReader reader;
    char block[1024];
    for (std::size_t n; (n = socket.read_some(asio::buffer(block), error)) > 0;) {
      reader.Feed(std::string_view(block, n));
      auto hello = reader.Next();
      if (!hello || !*hello) continue;
      Welcome welcome{"", 1, 2, 3};
      welcome.proof = ProofOf(token_, challenge, std::get<Hello>(**hello), welcome);
      asio::write(socket, asio::buffer(EncodeFrame(welcome) + EncodeFrame(Abort{"ha"})), error);
    }
  }

  asio::io_context io_;
  tcp::acceptor acceptor_{io_, {asio::ip::address_v4::loopback(), 0}};
  const std::string token_;
  std::thread thread_;
};

TEST_F(ControlServerTest, ARankLeavesAnImpostorAndFindsItsLauncher) {
  Impostor impostor("a guess");
  std::atomic<bool> found{false}, done{false};
  std::thread rank([&] {
    asio::io_context io;
    found = FindLauncher(io, impostor.Address() + "," + Loopback(), kToken, {0, "h", 1, "", "", ""})
                .has_value();
    done = true;
  });
  EXPECT_TRUE(ServeUntil([&] { return done.load(); }));
  rank.join();
  EXPECT_TRUE(found);
  EXPECT_EQ(seen_.hellos, std::vector<int>{0});
}

TEST(FindLauncher, AnImpostorAloneIsNamed) {
  Impostor impostor("a guess");
  asio::io_context io;
  const auto found = FindLauncher(io, impostor.Address(), kToken, {0, "h", 1, "", "", ""});
  ASSERT_FALSE(found);
  EXPECT_NE(found.error().message.find("does not know the token"), std::string::npos)
      << found.error().message;
}

TEST_F(ControlServerTest, ListensWithinItsPortsAndSaysWhenTheyAreTaken) {
  const int port = Endpoint().port();
  ControlServer::Settings settings;
  settings.ranks = 1;
  settings.ports = {port, port};
  const auto taken = ControlServer::Listen(io_, settings, {});
  ASSERT_FALSE(taken);
  EXPECT_NE(taken.error().message.find("launch.ports"), std::string::npos) << taken.error().message;
  server_.reset();
  const auto free = ControlServer::Listen(io_, settings, {});
  ASSERT_TRUE(free) << free.error().message;
  EXPECT_NE((*free)->Addresses().find(":" + std::to_string(port)), std::string::npos);
}

TEST_F(ControlServerTest, ATooLowFileLimitIsTold) {
  ControlServer::Settings settings;
  settings.ranks = std::numeric_limits<int>::max();
  const auto server = ControlServer::Listen(io_, settings, {});
  ASSERT_FALSE(server);
  EXPECT_EQ(server.error().exit_code, ExitCode::kPreflight);
  EXPECT_NE(server.error().message.find("open files"), std::string::npos);
}

TEST_F(ControlServerTest, NamesTheInterfacesWhereTheOneAskedForIsNotThere) {
  ControlServer::Settings settings;
  settings.ranks = 1;
  settings.interface = "none0";
  const auto none = ControlServer::Listen(io_, settings, {});
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("there are: "), std::string::npos);
  settings.interface = "lo";
  const auto loopback = ControlServer::Listen(io_, settings, {});
  ASSERT_TRUE(loopback) << loopback.error().message;
  EXPECT_EQ((*loopback)->Addresses().rfind("127.0.0.1:", 0), 0u) << (*loopback)->Addresses();
}

TEST_F(ControlServerTest, TheAddressThatReachesTheFirstRankComesFirst) {
  ControlServer::Settings settings;
  settings.ranks = 1;
  settings.first_rank = "127.0.0.1";
  const auto server = ControlServer::Listen(io_, settings, {});
  ASSERT_TRUE(server) << server.error().message;
  EXPECT_EQ((*server)->Addresses().rfind("127.0.0.1:", 0), 0u) << (*server)->Addresses();
}

TEST(FindLauncher, BadAddressesAreNamed) {
  asio::io_context io;
  for (const char* text : {"x", "1.2.3.4", "1.2.3.4:0", "1.2.3.4:70000", "[::1:5"})
    EXPECT_FALSE(FindLauncher(io, text, kToken, {0, "h", 1, "", "", ""})) << text;
}

}  // namespace
}  // namespace adaptive_train::control_server_test
