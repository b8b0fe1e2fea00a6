// Where slurmd listens, from scontrol's words, and whether something answers at an address.
#include "launcher/steps/slurmd_place.h"

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <optional>
#include <vector>

namespace adaptive_train {
namespace {

using boost::asio::ip::tcp;
using std::chrono::steady_clock;
using namespace std::chrono_literals;

TEST(SlurmdPlace, AnswersOfScontrol) {
  const SlurmdPlaces places = ParseSlurmds(
      "NodeName=n1 Arch=x86_64 NodeAddr=10.0.0.1 NodeHostName=n1 Port=16818 Version=22.05.8 "
      "State=IDLE\n"
      "NodeName=n2 NodeAddr=n2.cluster NodeHostName=n2 Version=22.05.8\n"
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
  const int port = acceptor->local_endpoint().port();
  EXPECT_TRUE(AnswersAt("127.0.0.1", port, 5s));
  acceptor.reset();
  EXPECT_TRUE(AnswersAt("127.0.0.1", port, 5s));
}

// A full backlog drops what comes, as a cut cable does.
TEST(SlurmdPlace, SilenceIsNoAnswer) {
  boost::asio::io_context io;
  tcp::acceptor acceptor(io);
  acceptor.open(tcp::v4());
  acceptor.bind({boost::asio::ip::address_v4::loopback(), 0});
  acceptor.listen(0);
  const tcp::endpoint here = acceptor.local_endpoint();
  std::vector<tcp::socket> waiting;
  for (int i = 0; i < 4; ++i) {
    waiting.emplace_back(io).async_connect(here, [](const boost::system::error_code&) {});
    io.poll();
  }
  const auto began = steady_clock::now();
  EXPECT_FALSE(AnswersAt("127.0.0.1", here.port(), 300ms));
  EXPECT_GE(steady_clock::now() - began, 300ms);
}

TEST(SlurmdPlace, WhatCannotBeTriedIsNotLost) {
  EXPECT_TRUE(AnswersAt("", 6818, 5s));
  EXPECT_TRUE(AnswersAt("no address", 6818, 5s));
}

}  // namespace
}  // namespace adaptive_train
