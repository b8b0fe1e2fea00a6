// Where slurmd listens, from scontrol's words, and whether something answers at an address.
#include "launcher/steps/slurmd_place.h"

#include <gmock/gmock.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <optional>
#include <vector>

namespace adaptive_train::slurmd_place_test {
namespace {

using boost::asio::ip::tcp;
using std::chrono::steady_clock;
using testing::ElementsAre;
using testing::IsEmpty;
using namespace std::chrono_literals;

TEST(SlurmdPlace, AnswersOfScontrol) {
  const SlurmdPlaces places = ParseSlurmds(
      "NodeName=n1 Arch=x86_64 NodeAddr=10.0.0.1 NodeHostName=n1 Port=16818 Version=22.05.8 "
      "State=IDLE\n"
      "NodeName=n2 NodeAddr=n2.cluster NodeHostName=n2 Version=22.05.8 Reason=card Port=1 is down\n"
      "NodeName=n3 State=IDLE\n\nPort=7\n",
      6818);
  ASSERT_EQ(places.size(), 2U);
  EXPECT_EQ(places.at("n1").name, "10.0.0.1");
  EXPECT_EQ(places.at("n1").port, 16818);
  EXPECT_EQ(places.at("n2").name, "n2.cluster");
  EXPECT_EQ(places.at("n2").port, 6818);
}

TEST(SlurmdPlace, AListenerAnswersAndSoDoesAHostWithoutOne) {
  boost::asio::io_context io;
  std::optional<tcp::acceptor> acceptor(std::in_place, io,
                                        tcp::endpoint(boost::asio::ip::address_v4::loopback(), 0));
  const SlurmdPlaces places{{"n1", {"127.0.0.1", acceptor->local_endpoint().port()}}};
  EXPECT_THAT(SilentAmong(places, 5s), IsEmpty());
  acceptor.reset();
  EXPECT_THAT(SilentAmong(places, 5s), IsEmpty());
}

// A full backlog drops what comes, as a cut cable does.
TEST(SlurmdPlace, OnlyTheSilentAreNamed) {
  boost::asio::io_context io;
  tcp::acceptor silent(io), listening(io, {boost::asio::ip::address_v4::loopback(), 0});
  silent.open(tcp::v4());
  silent.bind({boost::asio::ip::address_v4::loopback(), 0});
  silent.listen(0);
  const tcp::endpoint here = silent.local_endpoint();
  std::vector<tcp::socket> waiting;
  for (int i = 0; i < 4; ++i) {
    waiting.emplace_back(io).async_connect(here, [](const boost::system::error_code&) {});
    io.poll();
  }
  const auto began = steady_clock::now();
  EXPECT_THAT(SilentAmong({{"n1", {"127.0.0.1", listening.local_endpoint().port()}},
                           {"n2", {"127.0.0.1", here.port()}},
                           {"n3", {"localhost", listening.local_endpoint().port()}}},
                          300ms),
              ElementsAre("n2"));
  EXPECT_GE(steady_clock::now() - began, 300ms);
}

TEST(SlurmdPlace, WhatCannotBeTriedIsNotSilent) {
  EXPECT_THAT(
      SilentAmong({{"n1", {"", 6818}}, {"n2", {"no such name", 6818}}, {"n3", {"127.0.0.1", 0}}},
                  5s),
      IsEmpty());
}

}  // namespace
}  // namespace adaptive_train::slurmd_place_test
