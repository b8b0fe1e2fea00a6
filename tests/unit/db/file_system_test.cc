// Network file systems by their statfs numbers and mount types, and a real local one.
#include "db/file_system.h"

#include <gtest/gtest.h>

namespace adaptive_train::file_system_test {
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

constexpr std::string_view kMounts =
    "25 1 254:0 / / rw - ext4 /dev/vda rw\n"
    "26 25 0:22 / /run rw - tmpfs tmpfs rw\n"
    "27 25 254:0 /var/spool/slurm/12/.12 /tmp rw shared:1 - ext4 /dev/vda rw\n"
    "28 25 0:30 /@tmp /var/tmp rw - btrfs /dev/vdb rw\n"
    "29 25 0:31 / /scratch\\040one rw - xfs /dev/vdc rw\n"
    "30 29 0:32 / /scratch\\040one rw - tmpfs none rw\n";

TEST(MountOf, TakesTheDeepestAndTheLastOfEqualOnes) {
  EXPECT_EQ(MountOf(kMounts, "/home/ann/p.db").type, "ext4");
  EXPECT_EQ(MountOf(kMounts, "/run/user/1/p.db").point, "/run");
  EXPECT_EQ(MountOf(kMounts, "/runs/p.db").point, "/");
  EXPECT_EQ(MountOf(kMounts, "/scratch one/p.db").type, "tmpfs");
  EXPECT_EQ(MountOf("garbage\n", "/p.db").point, "");
}

TEST(WhyFilesGo, NamesTmpfsAndAPrivateTmpAndNothingThatStays) {
  const auto why = [](const char* path) { return WhyFilesGo(MountOf(kMounts, path)); };
  EXPECT_EQ(why("/home/ann/p.db"), "");
  EXPECT_EQ(why("/var/tmp/p.db"), "");
  EXPECT_EQ(why("/run/p.db"), "lies on tmpfs, which the next start of this host empties");
  EXPECT_EQ(
      why("/tmp/p.db"),
      "lies in a private /tmp (/var/spool/slurm/12/.12), which other jobs do not see and which "
      "may end with this one");
}

TEST(NetworkFileSystemOf, SaysThatProcIsLocalAndThatNothingIsNothing) {
  EXPECT_EQ(NetworkFileSystemOf("/proc").value_or("error"), "");
  const auto missing = NetworkFileSystemOf("/nonexistent/profiles.db");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().exit_code, ExitCode::kStore);
}

}  // namespace
}  // namespace adaptive_train::file_system_test
