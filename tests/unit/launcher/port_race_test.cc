// Two launchers that take the same port at the same time: the later one takes the next.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launcher/steps/control_server.h"

namespace {

bool rival_wanted = false;
int rival = -1;

}  // namespace

extern "C" int __real_listen(int socket, int backlog);
/// Another launcher listens where this one has just bound, and is that moment ahead of it.
extern "C" int __wrap_listen(int socket, int backlog) {
  if (!rival_wanted) return __real_listen(socket, backlog);
  rival_wanted = false;
  sockaddr_in6 address{};
  socklen_t size = sizeof address;
  const int yes = 1, no = 0;
  rival = ::socket(AF_INET6, SOCK_STREAM, 0);
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      ::setsockopt(rival, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
      ::setsockopt(rival, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no) != 0 ||
      ::bind(rival, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      __real_listen(rival, 1) != 0)
    ADD_FAILURE() << "no rival";
  return __real_listen(socket, backlog);
}

namespace adaptive_train::port_race_test {
namespace {

int PortOf(const ControlServer& server) {
  const std::string& addresses = server.Addresses();
  return std::stoi(addresses.substr(addresses.rfind(':') + 1));
}

TEST(LaunchPorts, WhoListensLaterTakesTheNextPort) {
  boost::asio::io_context io;
  ControlServer::Settings settings;
  settings.ranks = 1;
  auto any = ControlServer::Listen(io, settings, {});
  ASSERT_TRUE(any) << any.error().message;
  const int first = std::min(PortOf(**any), 65535 - 20);
  any->reset();
  settings.ports = {first, first + 20};
  rival_wanted = true;
  const auto server = ControlServer::Listen(io, settings, {});
  ASSERT_TRUE(server) << server.error().message;
  EXPECT_GT(PortOf(**server), first);
  EXPECT_LE(PortOf(**server), first + 20);
  ::close(rival);
}

}  // namespace
}  // namespace adaptive_train::port_race_test
