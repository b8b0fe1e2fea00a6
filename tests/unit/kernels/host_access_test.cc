// Pieces of arrays that the host writes and changes, in its memory and in another.
#include "kernels/host_access.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "kernels/cpu/cpu_device.h"
#include "kernels/reference/reference_device.h"
#include "tests/fakes/guarded_device.h"

namespace adaptive_train::kernels::host_access_test {
namespace {

/// No piece, one that is not full, a full one, several and a rest.
constexpr std::size_t kSizes[] = {0, 1, 1000, kHostPiece, 2 * kHostPiece + 3};

std::vector<float> Counting(std::size_t size) {
  std::vector<float> values(size);
  std::iota(values.begin(), values.end(), 1.0F);
  return values;
}

/// Writes the counting numbers and doubles them; gives the pieces' sizes.
std::vector<std::size_t> WriteAndChange(DeviceMemory& memory, std::span<float> array) {
  std::vector<std::size_t> sizes;
  WriteOnHost(memory, array, [&](std::size_t first, std::span<float> piece) {
    std::iota(piece.begin(), piece.end(), static_cast<float>(first + 1));
    sizes.push_back(piece.size());
  });
  ChangeOnHost(memory, array, [](std::size_t first, std::span<float> piece) {
    for (std::size_t i = 0; i < piece.size(); ++i) piece[i] += static_cast<float>(first + i + 1);
  });
  return sizes;
}

TEST(HostAccess, WritesAndChangesInPiecesWhatItCannotTouch) {
  cpu::CpuDevice<float> cpu(1);
  GuardedDevice<float> device(cpu);
  for (const std::size_t size : kSizes) {
    Buffer<float> array(device, size);
    const std::vector<std::size_t> sizes = WriteAndChange(device, array.span());
    EXPECT_EQ(sizes.size(), (size + kHostPiece - 1) / kHostPiece) << size;
    for (const std::size_t piece : sizes) EXPECT_LE(piece, kHostPiece);
    std::vector<float> found(size), expected = Counting(size);
    array.CopyToHost(found);
    for (float& value : expected) value *= 2;
    EXPECT_EQ(found, expected) << size;
  }
}

TEST(HostAccess, HasHostMemoryInOnePieceWithoutACopy) {
  cpu::CpuDevice<float> device(1);
  for (const std::size_t size : kSizes) {
    std::vector<float> array(size), expected = Counting(size);
    WriteOnHost(device, std::span(array), [&](std::size_t first, std::span<float> piece) {
      EXPECT_EQ(first, 0u);
      EXPECT_EQ(piece.data(), array.data());
      EXPECT_EQ(piece.size(), array.size());
    });
    WriteAndChange(device, array);
    for (float& value : expected) value *= 2;
    EXPECT_EQ(array, expected) << size;
  }
}

template <class D>
void ExpectGathers(D& device) {
  const std::vector<float> values = Counting(1000);
  Buffer<float> from(device, values.size());
  from.CopyFromHost(values);
  const std::vector<std::size_t> places{999, 0, 17, 17, 500};
  std::vector<float> to(places.size() + 1, -1);
  device.GatherToHost(std::span(to).first(places.size()), from.data(), places);
  EXPECT_EQ(to, (std::vector<float>{1000, 1, 18, 18, 501, -1}));
}

TEST(GatherToHost, TakesWhatIsAtThePlaces) {
  cpu::CpuDevice<float> cpu(2);
  reference::ReferenceDevice<float> reference;
  GuardedDevice<float> guarded(cpu);
  ExpectGathers(cpu);
  ExpectGathers(reference);
  ExpectGathers(guarded);
}

TEST(DeviceMemory, IsTheHostsOrNot) {
  cpu::CpuDevice<float> cpu(1);
  GuardedDevice<float> guarded(cpu);
  Buffer<float> value(guarded, 1);
  EXPECT_TRUE(cpu.OnHost());
  EXPECT_FALSE(guarded.OnHost());
  EXPECT_DEATH(value.span()[0] = 1, "");
}

TEST(HostAccess, ReadsWhatIsThere) {
  cpu::CpuDevice<float> cpu(1);
  GuardedDevice<float> guarded(cpu);
  for (DeviceMemory* memory :
       {static_cast<DeviceMemory*>(&cpu), static_cast<DeviceMemory*>(&guarded)}) {
    for (const std::size_t size : kSizes) {
      const std::vector<float> expected = Counting(size);
      Buffer<float> array(*memory, size);
      array.CopyFromHost(expected);
      std::vector<float> found;
      ReadOnHost(*memory, std::span<const float>(array.span()),
                 [&](std::size_t first, std::span<const float> piece) {
                   EXPECT_EQ(first, found.size());
                   EXPECT_TRUE(memory->OnHost() || piece.size() <= kHostPiece);
                   found.insert(found.end(), piece.begin(), piece.end());
                 });
      EXPECT_EQ(found, expected) << size;
    }
  }
}

}  // namespace
}  // namespace adaptive_train::kernels::host_access_test
