// The control channel's server against real sockets: strangers, late ranks, garbage, silence.
#include "launcher/steps/control_server.h"

#include <gtest/gtest.h>

#include <thread>

namespace adaptive_train {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

struct Seen {
  std::vector<int> hellos, ready, closed;
};

class ControlServerTest : public testing::Test {
 protected:
  void SetUp() override {
    ControlServer::Events events;
    events.on_hello = [this](const Hello& hello) { seen_.hellos.push_back(hello.rank); };
    events.on_message = [this](int rank, const ControlMessage& message) {
      if (std::holds_alternative<Ready>(message)) seen_.ready.push_back(rank);
    };
    events.on_closed = [this](int rank, const std::string&) { seen_.closed.push_back(rank); };
    events.on_silent = [](int) {};
    auto server = ControlServer::Listen(io_, 2, "secret", std::move(events));
    ASSERT_TRUE(server) << server.error().message;
    server_ = std::move(*server);
  }
  tcp::socket Connect() {
    tcp::socket socket(client_io_);
    const std::string& addresses = server_->Addresses();
    const auto port = std::stoi(addresses.substr(addresses.rfind(':') + 1));
    socket.connect(
        tcp::endpoint(asio::ip::address_v4::loopback(), static_cast<unsigned short>(port)));
    return socket;
  }
  void Serve() { io_.run_for(std::chrono::milliseconds(100)); }
  static void Say(tcp::socket& socket, const ControlMessage& message) {
    asio::write(socket, asio::buffer(EncodeFrame(message)));
  }

  asio::io_context io_, client_io_;
  Seen seen_;
  std::unique_ptr<ControlServer> server_;
};

TEST_F(ControlServerTest, TakesRanksThatKnowTheToken) {
  auto one = Connect();
  Say(one, Hello{"secret", 1, "h", 1, ""});
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

TEST_F(ControlServerTest, DropsStrangersWithoutAWord) {
  const ControlMessage first[] = {Hello{"wrong", 1, "h", 1, ""}, Hello{"secret", 2, "h", 1, ""},
                                  Hello{"secret", -1, "h", 1, ""}, Hello{"", 0, "h", 1, ""},
                                  Ready{}};
  for (const ControlMessage& message : first) {
    auto socket = Connect();
    Say(socket, message);
    Serve();
    char byte;
    boost::system::error_code error;
    socket.read_some(asio::buffer(&byte, 1), error);
    EXPECT_TRUE(error) << "the connection was kept";
  }
  EXPECT_TRUE(seen_.hellos.empty());
  EXPECT_TRUE(seen_.closed.empty());
}

TEST_F(ControlServerTest, ASecondConnectionOfARankIsAStranger) {
  auto one = Connect(), two = Connect();
  Say(one, Hello{"secret", 0, "h", 1, ""});
  Serve();
  Say(two, Hello{"secret", 0, "h", 1, ""});
  Say(two, Ready{});
  Serve();
  EXPECT_EQ(seen_.hellos, std::vector<int>{0});
  EXPECT_TRUE(seen_.ready.empty());
}

TEST_F(ControlServerTest, GarbageOfARankClosesItsConnection) {
  auto one = Connect();
  Say(one, Hello{"secret", 0, "h", 1, ""});
  asio::write(one, asio::buffer(std::string("\xff\xff\xff\xffgarbage")));
  Serve();
  EXPECT_EQ(seen_.closed, std::vector<int>{0});
}

TEST_F(ControlServerTest, TalksToItsRanks) {
  auto one = Connect();
  Say(one, Hello{"secret", 0, "h", 1, ""});
  Serve();
  server_->SendAll(Stop{});
  server_->Send(1, Go{});  // not connected: nothing happens
  Serve();
  FrameReader reader;
  char block[256];
  reader.Feed(std::string_view(block, one.read_some(asio::buffer(block))));
  EXPECT_TRUE(std::holds_alternative<Stop>(**reader.Next()));
}

}  // namespace
}  // namespace adaptive_train
