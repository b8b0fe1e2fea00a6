// What runtime/comm/nccl_library.h declares is what nccl.h and the library that are installed have.
#include <gtest/gtest.h>
#include <nccl.h>

#include <cstddef>

#include "runtime/comm/nccl_library.h"

namespace adaptive_train::nccl_abi_test {
namespace {

namespace ours = nccl;

template <auto kOurs, auto kTheirs>
constexpr bool kSame = static_cast<int>(kOurs) == static_cast<int>(kTheirs);

static_assert(sizeof(ours::ncclUniqueId) == sizeof(::ncclUniqueId));
static_assert(sizeof(ours::ncclResult_t) == sizeof(::ncclResult_t));
static_assert(sizeof(ours::ncclDataType_t) == sizeof(::ncclDataType_t));
static_assert(sizeof(ours::ncclRedOp_t) == sizeof(::ncclRedOp_t));
static_assert(sizeof(ours::cudaStream_t) == sizeof(::cudaStream_t));

static_assert(kSame<ours::ncclSuccess, ::ncclSuccess>);
static_assert(kSame<ours::ncclUnhandledCudaError, ::ncclUnhandledCudaError>);
static_assert(kSame<ours::ncclSystemError, ::ncclSystemError>);
static_assert(kSame<ours::ncclInternalError, ::ncclInternalError>);
static_assert(kSame<ours::ncclInvalidArgument, ::ncclInvalidArgument>);
static_assert(kSame<ours::ncclInvalidUsage, ::ncclInvalidUsage>);
static_assert(kSame<ours::ncclRemoteError, ::ncclRemoteError>);
static_assert(kSame<ours::ncclInProgress, ::ncclInProgress>);
static_assert(kSame<ours::ncclFloat16, ::ncclFloat16>);
static_assert(kSame<ours::ncclFloat32, ::ncclFloat32>);
static_assert(kSame<ours::ncclFloat64, ::ncclFloat64>);
static_assert(kSame<ours::ncclBfloat16, ::ncclBfloat16>);
static_assert(kSame<ours::ncclSum, ::ncclSum>);
static_assert(ours::kNoColor == NCCL_SPLIT_NOCOLOR);
static_assert(ours::kUndefined == NCCL_CONFIG_UNDEF_INT);
static_assert(ours::kConfigVersion == NCCL_VERSION(2, 18, 0));

// Ours is an older and shorter one.
static_assert(offsetof(ours::ncclConfig_t, magic) == offsetof(::ncclConfig_t, magic));
static_assert(offsetof(ours::ncclConfig_t, version) == offsetof(::ncclConfig_t, version));
static_assert(offsetof(ours::ncclConfig_t, blocking) == offsetof(::ncclConfig_t, blocking));
static_assert(offsetof(ours::ncclConfig_t, minCTAs) == offsetof(::ncclConfig_t, minCTAs));
static_assert(offsetof(ours::ncclConfig_t, maxCTAs) == offsetof(::ncclConfig_t, maxCTAs));
static_assert(offsetof(ours::ncclConfig_t, netName) == offsetof(::ncclConfig_t, netName));
static_assert(offsetof(ours::ncclConfig_t, splitShare) == offsetof(::ncclConfig_t, splitShare));
static_assert(sizeof(ours::ncclConfig_t) <= sizeof(::ncclConfig_t));

TEST(NcclAbi, TheMagicNumberIsTheHeaders) {
  const ::ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  EXPECT_EQ(ours::ncclConfig_t().magic, theirs.magic);
}

TEST(NcclAbi, TheInstalledLibraryHasAllFunctions) {
  const auto library = nccl::Library::Open(REAL_NCCL);
  ASSERT_TRUE(library) << library.error().message;
  EXPECT_EQ(library->version, nccl::VersionText(NCCL_VERSION_CODE));
  EXPECT_STREQ(library->get_error_string(ours::ncclSuccess), "no error");
}

}  // namespace
}  // namespace adaptive_train::nccl_abi_test
