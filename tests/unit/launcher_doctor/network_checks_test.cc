// The launcher's interface, and what UCX is told to use.
#include "launcher/doctor/network_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/spank_plugin/temporary_folder.h"

namespace adaptive_train::network_checks_test {
namespace {

using testing::HasSubstr;

TEST(CheckInterface, OneThatIsNotHereIsTrouble) {
  LaunchConfig launch;
  EXPECT_EQ(CheckInterface(launch).severity, Severity::kGood);
  launch.interface = "lo";
  EXPECT_EQ(CheckInterface(launch).severity, Severity::kGood);
  launch.interface = "nosuch0";
  const Finding finding = CheckInterface(launch);
  EXPECT_EQ(finding.severity, Severity::kTrouble);
  EXPECT_THAT(finding.what, HasSubstr("\"nosuch0\" is not up or has no address here; there are: "));
}

TEST(CheckUcxDevices, NamesTheOneThatIsMissingAndThoseThatAreThere) {
  const TemporaryFolder root;
  root.Write("sys/class/net/eth0/address", "");
  root.Write("sys/class/infiniband/mlx5_0/node_type", "");
  const auto severity = [&](const char* named) {
    return CheckUcxDevices(named, root.Path()).severity;
  };
  for (const char* named : {"", "all", "eth0", "mlx5_0:1,eth0"})
    EXPECT_EQ(severity(named), Severity::kGood) << named;
  const Finding finding = CheckUcxDevices("eth0,ib0", root.Path());
  EXPECT_EQ(finding.severity, Severity::kTrouble);
  EXPECT_EQ(finding.what,
            "UCX_NET_DEVICES=eth0,ib0 names ib0, which is not here; there are: eth0, mlx5_0");
}

TEST(CheckUcxTransports, WithoutOneBetweenHostsIsTrouble) {
  for (const char* named : {"", "all", "tcp,self", "rc_x,sm", "^sm", "ib"})
    EXPECT_EQ(CheckUcxTransports(named).severity, Severity::kGood) << named;
  for (const char* named : {"self,sm", "posix", "tcpx"})
    EXPECT_EQ(CheckUcxTransports(named).severity, Severity::kTrouble) << named;
}

}  // namespace
}  // namespace adaptive_train::network_checks_test
