// Loading NCCL, and what is refused.
#include "runtime/comm/nccl_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/runtime_comm/fake_ranks.h"

namespace adaptive_train::nccl_library_test {
namespace {

using testing::HasSubstr;

TEST(NcclLibrary, VersionsInWords) {
  EXPECT_EQ(nccl::VersionText(22809), "2.28.9");
  EXPECT_EQ(nccl::VersionText(2804), "2.8.4");  // how versions were counted until 2.8
  EXPECT_EQ(OpenFake().version, "2.28.9");
}

TEST(NcclLibrary, WhatIsNotThereIsToldWithItsRemedy) {
  const auto none = nccl::Library::Open("libnot_there.so.2");
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message, HasSubstr("NCCL cannot be loaded (libnot_there.so.2"));
  EXPECT_THAT(none.error().message, HasSubstr("install libnccl2"));
}

TEST(NcclLibrary, AnotherLibraryIsToldByWhatItLacks) {
  EXPECT_EQ(nccl::Library::Open("libm.so.6").error().message,
            "libm.so.6 has no ncclGetVersion: it is not NCCL");
}

TEST(NcclLibrary, AnOldOneIsRefused) {
  fake_nccl::SayVersion(21705);
  const auto old = nccl::Library::Open(FAKE_NCCL);
  fake_nccl::SayVersion(22809);
  ASSERT_FALSE(old);
  EXPECT_THAT(old.error().message, HasSubstr("NCCL 2.17.5 is too old"));
  EXPECT_THAT(old.error().message, HasSubstr("2.18 or later is needed"));
}

}  // namespace
}  // namespace adaptive_train::nccl_library_test
