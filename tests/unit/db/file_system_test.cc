// Network file systems by their statfs numbers and mount types, and a real local one.
#include "db/file_system.h"

#include <gtest/gtest.h>

namespace adaptive_train {
namespace {

TEST(NetworkFileSystemName, KnowsNetworkFileSystemsByNumber) {
  EXPECT_EQ(NetworkFileSystemName(0x6969, ""), "nfs");
  EXPECT_EQ(NetworkFileSystemName(0xFF534D42, ""), "cifs");
  EXPECT_EQ(NetworkFileSystemName(0xFE534D42, ""), "smb3");
  EXPECT_EQ(NetworkFileSystemName(0x0BD00BD0, ""), "lustre");
  EXPECT_EQ(NetworkFileSystemName(0x47504653, ""), "gpfs");
  EXPECT_EQ(NetworkFileSystemName(0x19830326, ""), "beegfs");
  EXPECT_EQ(NetworkFileSystemName(0x00C36400, ""), "ceph");
  EXPECT_EQ(NetworkFileSystemName(0x5346414F, ""), "afs");
  EXPECT_EQ(NetworkFileSystemName(0x01021997, ""), "9p");
}

TEST(NetworkFileSystemName, TakesLocalOnes) {
  EXPECT_EQ(NetworkFileSystemName(0xEF53, "ext4"), "");
  EXPECT_EQ(NetworkFileSystemName(0x58465342, "xfs"), "");
  EXPECT_EQ(NetworkFileSystemName(0x9123683E, "btrfs"), "");
  EXPECT_EQ(NetworkFileSystemName(0x01021994, "tmpfs"), "");
  EXPECT_EQ(NetworkFileSystemName(0x794C7630, "overlay"), "");
  EXPECT_EQ(NetworkFileSystemName(0x2FC12FC1, "zfs"), "");
}

TEST(NetworkFileSystemName, TakesFuseForANetworkUnlessKnownToBeLocal) {
  EXPECT_EQ(NetworkFileSystemName(0x65735546, "fuse.sshfs"), "fuse.sshfs");
  EXPECT_EQ(NetworkFileSystemName(0x65735546, "fuse.something-new"), "fuse.something-new");
  EXPECT_EQ(NetworkFileSystemName(0x65735546, ""), "fuse");
  EXPECT_EQ(NetworkFileSystemName(0x65735546, "fuseblk"), "");
  EXPECT_EQ(NetworkFileSystemName(0x65735546, "fuse.fuse-overlayfs"), "");
}

TEST(NetworkFileSystemName, KnowsMountTypesWithoutANumber) {
  EXPECT_EQ(NetworkFileSystemName(0x12345678, "wekafs"), "wekafs");
  EXPECT_EQ(NetworkFileSystemName(0x12345678, "nfs4"), "nfs4");
  EXPECT_EQ(NetworkFileSystemName(0x12345678, "dvs"), "dvs");
  EXPECT_EQ(NetworkFileSystemName(0x12345678, "newfs"), "");
}

TEST(MountTypeOf, ReadsTheTypeBehindAnyNumberOfOptionalFields) {
  constexpr std::string_view kMountinfo =
      "22 27 0:21 / /proc rw,relatime - proc proc rw\n"
      "40 27 0:45 / /home/with\\040blank rw shared:1 master:2 - fuse.sshfs ann@far:/ rw,user_id=0\n"
      "41 27 254:0 / / rw,relatime - ext4 /dev/vda rw\n";
  EXPECT_EQ(MountTypeOf(kMountinfo, 0, 45), "fuse.sshfs");
  EXPECT_EQ(MountTypeOf(kMountinfo, 254, 0), "ext4");
  EXPECT_EQ(MountTypeOf(kMountinfo, 0, 4), "");
  EXPECT_EQ(MountTypeOf("garbage\n1 2 3:4\n", 3, 4), "");
}

TEST(NetworkFileSystemOf, SaysThatProcIsLocalAndThatNothingIsNothing) {
  EXPECT_EQ(NetworkFileSystemOf("/proc").value_or("error"), "");
  const auto missing = NetworkFileSystemOf("/nonexistent/profiles.db");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().exit_code, ExitCode::kStore);
}

}  // namespace
}  // namespace adaptive_train
