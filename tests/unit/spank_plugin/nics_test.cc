// Network cards and RDMA devices as they appear under /sys.
#include "spank_plugin/probe/nics.h"

#include <gtest/gtest.h>

#include "tests/unit/spank_plugin/temporary_folder.h"

namespace adaptive_train::probe::nics_test {
namespace {

class NicsTest : public testing::Test {
 protected:
  void WriteInterface(const std::string& name, const std::string& type, const std::string& state,
                      const std::string& speed) {
    root_.Write("sys/class/net/" + name + "/type", type + "\n");
    root_.Write("sys/class/net/" + name + "/operstate", state + "\n");
    if (!speed.empty()) root_.Write("sys/class/net/" + name + "/speed", speed + "\n");
  }
  void Link(const std::string& from, const std::string& to) {
    std::filesystem::create_directories(root_.Path() + "/" + to);
    std::filesystem::create_directory_symlink(root_.Path() + "/" + to, root_.Path() + "/" + from);
  }
  Node Read() {
    Node node;
    ReadNics(node, root_.Path());
    return node;
  }

  TemporaryFolder root_;
};

TEST_F(NicsTest, NoneIsSaid) {
  const Node node = Read();
  EXPECT_TRUE(node.nics.empty());
  EXPECT_FALSE(node.nics_status.Ok());
}

TEST_F(NicsTest, InterfacesAreSortedWithKindStateAndSpeed) {
  WriteInterface("zz-eth", "1", "up", "100000");
  WriteInterface("ib0", "32", "down", "-1");
  WriteInterface("tunnel", "65534", "unknown", "");
  WriteInterface("dormant", "1", "dormant", "10");
  WriteInterface("lo", "772", "unknown", "");
  root_.Write("sys/class/net/bonding_masters", "bond0\n");
  Link("sys/class/net/zz-eth/device", "sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.1/virtio2");
  const Node node = Read();
  EXPECT_TRUE(node.nics_status.Ok());
  ASSERT_EQ(node.nics.size(), 4U);
  EXPECT_EQ(node.nics[0].name, "dormant");
  EXPECT_EQ(node.nics[0].state, "unknown");
  EXPECT_EQ(node.nics[0].bits_per_second, 10'000'000);
  EXPECT_EQ(node.nics[1].name, "ib0");
  EXPECT_EQ(node.nics[1].kind, "infiniband");
  EXPECT_EQ(node.nics[1].state, "down");
  EXPECT_EQ(node.nics[1].bits_per_second, std::nullopt);
  EXPECT_EQ(node.nics[1].pci, "");
  EXPECT_EQ(node.nics[2].kind, "other");
  EXPECT_EQ(node.nics[3].name, "zz-eth");
  EXPECT_EQ(node.nics[3].kind, "ethernet");
  EXPECT_EQ(node.nics[3].state, "up");
  EXPECT_EQ(node.nics[3].bits_per_second, 100'000'000'000);
  EXPECT_EQ(node.nics[3].pci, "0000:3b:00.1");
}

TEST_F(NicsTest, RdmaDevicesHaveOneEntryAPort) {
  const std::string device = "sys/class/infiniband/mlx5_0";
  root_.Write(device + "/ports/1/rate", "200 Gb/sec (4X HDR)\n");
  root_.Write(device + "/ports/1/state", "4: ACTIVE\n");
  root_.Write(device + "/ports/1/link_layer", "InfiniBand\n");
  root_.Write(device + "/ports/2/rate", "2.5 Gb/sec (1X SDR)\n");
  root_.Write(device + "/ports/2/state", "1: DOWN\n");
  root_.Write(device + "/ports/2/link_layer", "Ethernet\n");
  Link(device + "/device", "sys/devices/pci0000:5a/0000:5b:00.0");
  const Node node = Read();
  ASSERT_EQ(node.nics.size(), 2U);
  EXPECT_EQ(node.nics[0].name, "mlx5_0");
  EXPECT_EQ(node.nics[0].kind, "infiniband");
  EXPECT_EQ(node.nics[0].state, "up");
  EXPECT_EQ(node.nics[0].bits_per_second, 200'000'000'000);
  EXPECT_EQ(node.nics[0].pci, "0000:5b:00.0");
  EXPECT_EQ(node.nics[1].name, "mlx5_0:2");
  EXPECT_EQ(node.nics[1].kind, "ethernet");
  EXPECT_EQ(node.nics[1].state, "down");
  EXPECT_EQ(node.nics[1].bits_per_second, 2'500'000'000);
}

}  // namespace
}  // namespace adaptive_train::probe::nics_test
