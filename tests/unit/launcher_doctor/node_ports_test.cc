// Tasks that reach each other at addresses of the loopback, as nodes do.
#include "launcher/doctor/node_ports.h"

#include <gmock/gmock.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

namespace adaptive_train::node_ports_test {
namespace {

using boost::asio::ip::tcp;

/// A port that nobody has now.
int FreePort() {
  boost::asio::io_context io;
  return tcp::acceptor(io, tcp::endpoint(tcp::v4(), 0)).local_endpoint().port();
}

std::string Words(const Result<std::string>& said) { return said ? *said : said.error().message; }

/// Listens at 127.0.0.2 alone, until it is destroyed.
class Listener {
 public:
  explicit Listener(int port)
      : acceptor_(io_, tcp::endpoint(boost::asio::ip::make_address("127.0.0.2"),
                                     static_cast<std::uint16_t>(port))) {}

 private:
  boost::asio::io_context io_;
  tcp::acceptor acceptor_;
};

TEST(ReachOthers, AloneThereIsNobodyToReach) {
  EXPECT_EQ(Words(ReachOthers(FreePort(), {"127.0.0.1"}, 0)), "reached");
}

TEST(ReachOthers, WhoDoesNotListenIsNamedAndOnesOwnAddressesAreNoOthers) {
  // 127.0.0.1 answers here, as the bridge of another node's containers would.
  const auto said =
      ReachOthers(FreePort(), {"127.0.0.1", "127.0.0.1", "", "nonsense,::ffff:999"}, 0);
  EXPECT_EQ(Words(said), "missed 1 2 3");
}

TEST(ReachOthers, TheFirstAddressThatAnswersIsEnough) {
  // This task, by an address that it does not know as its own, stands for another.
  EXPECT_EQ(Words(ReachOthers(FreePort(), {"127.0.0.1", "127.0.0.1,nonsense,127.0.0.9"}, 0)),
            "reached");
}

TEST(ReachOthers, APortThatIsTakenIsAnError) {
  const int port = FreePort();
  const Listener taken(port);
  EXPECT_THAT(Words(ReachOthers(port, {"127.0.0.1"}, 0)),
              ::testing::HasSubstr("cannot listen at port"));
}

TEST(OwnAddresses, AreThoseOfTheInterface) {
  EXPECT_THAT(Words(OwnAddresses("no-such-card")), ::testing::HasSubstr("no-such-card"));
  const auto all = OwnAddresses("auto");
  EXPECT_THAT(Words(all), ::testing::Not(::testing::HasSubstr("127.0.0.1")));
}

}  // namespace
}  // namespace adaptive_train::node_ports_test
