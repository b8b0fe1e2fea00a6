// Files of tensors: what is written is read again, and nothing that is not the format gets in.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstring>

#include "runtime/checkpoint/safetensors.h"
#include "tests/unit/runtime_checkpoint/temporary_hf_folder.h"

namespace adaptive_train::hf_safetensors_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// A file of this header and data.
std::string FileOf(const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  std::string out(8, '\0');
  std::memcpy(out.data(), &length, 8);
  return out + header + data;
}

std::string ErrorOf(const std::string& header, std::uint64_t data_bytes) {
  auto entries = ParseSafetensorsHeader(header, data_bytes);
  return entries ? "accepted" : entries.error().message;
}

TEST(Safetensors, WrittenTensorsAreReadAgain) {
  TemporaryHfFolder folder;
  const auto count_up = [](std::span<float> values) {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) - 1.5F;
  };
  const std::vector<TensorSource> sources{
      {"b", {2, 3}, count_up}, {"a", {0}, count_up}, {"c", {}, count_up}};
  ASSERT_TRUE(WriteSafetensors(folder / "m.safetensors", sources));
  auto file = SafetensorsFile::Open(folder / "m.safetensors");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->entries().size(), 3U);
  EXPECT_THAT(*file->Read("b", {2, 3}), ElementsAre(-1.5F, -0.5F, 0.5F, 1.5F, 2.5F, 3.5F));
  EXPECT_THAT(*file->Read("a", {0}), ElementsAre());
  EXPECT_THAT(*file->Read("c", {}), ElementsAre(-1.5F));
}

TEST(Safetensors, DataBeginsAtAMultipleOfEight) {
  TemporaryHfFolder folder;
  for (const char* name : {"a", "ab", "abc", "abcd", "abcde", "abcdef", "abcdefg", "abcdefgh"}) {
    const std::vector<TensorSource> sources{{name, {1}, [](std::span<float> v) { v[0] = 1; }}};
    ASSERT_TRUE(WriteSafetensors(folder / "m.safetensors", sources));
    EXPECT_EQ(folder.Read("m.safetensors").size() % 8, 4U);
  }
}

TEST(Safetensors, NoTemporaryFileStaysBehind) {
  TemporaryHfFolder folder;
  ASSERT_TRUE(WriteSafetensors(folder / "m.safetensors", {}));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(Safetensors, AFolderThatIsNotThereIsAnError) {
  auto written = WriteSafetensors("/nonexistent/m.safetensors", {});
  ASSERT_FALSE(written);
  EXPECT_THAT(written.error().message, HasSubstr("/nonexistent/m.safetensors: No such file"));
}

TEST(Safetensors, AFullDiskLeavesTheOldFile) {
  TemporaryHfFolder folder;
  folder.Write("m.safetensors", "old");
  const auto zeros = [](std::span<float>) {};
  struct rlimit before {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  struct rlimit small = before;
  small.rlim_cur = 4096;
  signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::vector<TensorSource> sources{{"a", {100'000}, zeros}};
  const auto written = WriteSafetensors(folder / "m.safetensors", sources);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_FALSE(written);
  EXPECT_EQ(folder.Read("m.safetensors"), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(Safetensors, HalvesBecomeFloats) {
  TemporaryHfFolder folder;
  const std::uint16_t halves[] = {0x3c00, 0xc000, 0x7bff, 0x0001, 0x8000, 0x0400};  // binary16
  const std::uint16_t bfloats[] = {0x3f80, 0xc040};
  std::string data(reinterpret_cast<const char*>(halves), sizeof halves);
  data.append(reinterpret_cast<const char*>(bfloats), sizeof bfloats);
  folder.Write("h.safetensors",
               FileOf(R"({"h":{"dtype":"F16","shape":[6],"data_offsets":[0,12]},)"
                      R"("b":{"dtype":"BF16","shape":[2],"data_offsets":[12,16]}})",
                      data));
  auto file = SafetensorsFile::Open(folder / "h.safetensors");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_THAT(*file->Read("h", {6}), ElementsAre(1.0F, -2.0F, 65504.0F, 0x1p-24F, -0.0F, 0x1p-14F));
  EXPECT_THAT(*file->Read("b", {2}), ElementsAre(1.0F, -3.0F));
}

TEST(Safetensors, RefusalsNameFileAndTensor) {
  TemporaryHfFolder folder;
  const float infinity = INFINITY;
  std::string data(reinterpret_cast<const char*>(&infinity), 4);
  folder.Write("m.safetensors", FileOf(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                                       R"("i":{"dtype":"I64","shape":[1],"data_offsets":[4,12]}})",
                                       data + std::string(8, 'i')));
  auto file = SafetensorsFile::Open(folder / "m.safetensors");
  ASSERT_TRUE(file) << file.error().message;
  const std::string at = folder / "m.safetensors";
  EXPECT_EQ(file->Read("x", {1}).error().message,
            at + ": tensor x holds a value that is not finite");
  EXPECT_EQ(file->Read("x", {2, 1}).error().message, at + ": tensor x is [1], expected [2, 1]");
  EXPECT_EQ(file->Read("y", {1}).error().message, at + ": tensor y is not there");
  EXPECT_EQ(file->Read("i", {1}).error().message,
            at + ": tensor i is of type I64; allowed are F32, BF16, F16");
}

TEST(Safetensors, ForeignAndTornFilesAreRefused) {
  TemporaryHfFolder folder;
  const std::string good =
      FileOf(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "abcd");
  for (std::size_t size = 0; size < good.size(); ++size) {
    folder.Write("m.safetensors", good.substr(0, size));
    auto file = SafetensorsFile::Open(folder / "m.safetensors");
    ASSERT_FALSE(file) << size;
    EXPECT_THAT(file.error().message, HasSubstr("m.safetensors: "));
  }
  folder.Write("m.safetensors", good + "e");
  EXPECT_FALSE(SafetensorsFile::Open(folder / "m.safetensors"));
  folder.Write("m.safetensors", std::string(64, '\xff'));
  auto huge = SafetensorsFile::Open(folder / "m.safetensors");
  ASSERT_FALSE(huge);
  EXPECT_THAT(huge.error().message, HasSubstr("a header of 18446744073709551615 bytes"));
}

TEST(Safetensors, HeadersThatLieAreRefused) {
  EXPECT_EQ(ErrorOf("{}", 0), "accepted");
  EXPECT_EQ(ErrorOf(R"({"__metadata__":{"a":"b"}}   )", 0), "accepted");
  EXPECT_THAT(ErrorOf("{}", 4), HasSubstr("its tensors take 0 bytes, the file holds 4"));
  EXPECT_THAT(ErrorOf("[]", 0), HasSubstr("not a JSON object"));
  EXPECT_THAT(ErrorOf("", 0), HasSubstr("not JSON"));
  EXPECT_THAT(ErrorOf(std::string(100'000, '['), 0), HasSubstr("not JSON"));
  EXPECT_THAT(ErrorOf(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                      R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                      4),
              HasSubstr("two tensors are named a"));
  const auto one = [](const char* fields, std::uint64_t bytes = 4) {
    return ErrorOf(std::string(R"({"a":{)") + fields + "}}", bytes);
  };
  EXPECT_EQ(one(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])"), "accepted");
  EXPECT_EQ(
      one(R"("dtype":"F32","shape":[0,9223372036854775807,9223372036854775807],"data_offsets":[0,0])",
          0),
      "accepted");
  EXPECT_THAT(one(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])"),
              HasSubstr("begins at byte 4"));
  EXPECT_THAT(one(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"),
              HasSubstr("not the bytes of its shape"));
  EXPECT_THAT(one(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])"),
              HasSubstr("not the bytes of its shape"));
  EXPECT_THAT(one(R"("dtype":"F32","shape":[4611686018427387905,4],"data_offsets":[0,4])"),
              HasSubstr("not the bytes of its shape"));
  EXPECT_THAT(one(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])"),
              HasSubstr("tensor a: shape must hold"));
  EXPECT_THAT(one(R"("dtype":"F32","shape":[1.0],"data_offsets":[0,4])"),
              HasSubstr("shape must hold"));
  EXPECT_THAT(one(R"("dtype":"F32","shape":[1],"data_offsets":[0,-4])"),
              HasSubstr("data_offsets must hold"));
  EXPECT_THAT(one(R"("dtype":"F32","shape":[1],"data_offsets":[0])"), HasSubstr("no data_offsets"));
  EXPECT_THAT(one(R"("dtype":"F33","shape":[1],"data_offsets":[0,4])"),
              HasSubstr("unknown dtype F33"));
  EXPECT_THAT(one(R"("dtype":4,"shape":[1],"data_offsets":[0,4])"), HasSubstr("no dtype"));
  EXPECT_THAT(one(R"("dtype":"F32","shape":1,"data_offsets":[0,4])"), HasSubstr("no shape"));
}

}  // namespace
}  // namespace adaptive_train::hf_safetensors_test
