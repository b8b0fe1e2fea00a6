// A safetensors file's header in front of 64 bytes: whatever is accepted covers them without a gap.
#include "runtime/checkpoint/safetensors.h"

#include <algorithm>

#include "tests/fuzz/fuzz.h"

namespace adaptive_train::fuzz {
namespace {

constexpr std::uint64_t kDataBytes = 64;

}  // namespace

void FuzzOne(std::string_view input) {
  const auto entries = ParseSafetensorsHeader(input, kDataBytes);
  if (!entries) return Require(!entries.error().message.empty());
  std::uint64_t bytes = 0;
  for (const auto& [name, entry] : *entries) {
    Require(entry.begin <= entry.end && entry.end <= kDataBytes);
    Require(entry.count >= 0 && static_cast<std::uint64_t>(entry.count) <= entry.end - entry.begin);
    Require(std::all_of(entry.shape.begin(), entry.shape.end(), [](auto n) { return n >= 0; }));
    bytes += entry.end - entry.begin;
  }
  Require(bytes == kDataBytes);
}

std::vector<std::string> FuzzSeeds() {
  return {
      R"({"a":{"dtype":"F32","shape":[4,4],"data_offsets":[0,64]}})",
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"BF16","shape":[8],"data_offsets":[48,64]},)"
      R"("b":{"dtype":"F16","shape":[2,3,4],"data_offsets":[0,48]}}  )",
      R"({"a":{"dtype":"I64","shape":[],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[0,9],)"
      R"("data_offsets":[8,8]},"c":{"dtype":"F64","shape":[7],"data_offsets":[8,64]}})"};
}

}  // namespace adaptive_train::fuzz
