// A profile's JSON: what is accepted holds only numbers that can be reckoned with, and reads again
// as it was written.
#include <cmath>

#include "core/profile.h"
#include "tests/fuzz/fuzz.h"

namespace adaptive_train::fuzz {
namespace {

Profile SomeProfile() {
  const Evidence evidence{3, 0.05, 1.8e9};
  Profile profile;
  profile.links = {{"n1", "n2", 5e-5, 1.2e8, evidence}, {"n1", "n1", 1e-6, 9e9, {1, 0, 1.7e9}}};
  profile.devices.push_back({});
  profile.devices.back().device_kind = "cpu, 4 threads";
  profile.devices.back().product_flops = 1.9e11;
  profile.devices.back().bytes_per_second = 1e10;
  profile.devices.back().evidence = evidence;
  profile.layers = {
      {"cpu, 4 threads", "gpt2 384", "block", 2, 0.01, 0.02, 0.01, 1e-3, 1e-7, evidence}};
  profile.nodes = {{"n1", 0.5}};
  return profile;
}

bool IsSpeed(double value) { return std::isfinite(value) && value > 0; }

}  // namespace

void FuzzOne(std::string_view input) {
  const auto profile = ProfileFromJson(input);
  if (!profile) {
    Require(!profile.error().message.empty());
    Require(profile.error().message.find('\n') == std::string::npos);
    return;
  }
  for (const LinkMeasurement& link : profile->links) {
    Require(IsSpeed(link.bytes_per_second) && std::isfinite(link.latency_s));
    const double confidence = link.evidence.Confidence(1.8e9);
    Require(confidence >= 0 && confidence <= 1);
  }
  for (const LayerMeasurement& layer : profile->layers)
    Require(IsSpeed(layer.forward_s) && IsSpeed(layer.backward_s) && layer.micro_batch > 0);
  const std::string text = ToJson(*profile);
  const auto again = ProfileFromJson(text);
  Require(again && ToJson(*again) == text);
}

std::vector<std::string> FuzzSeeds() {
  return {ToJson(SomeProfile()),
          ToJson(Profile{}),
          R"({"format_version":1,"links":[{"from":"a","to":"b","latency_s":0,)"
          R"("bytes_per_second":1e308,"evidence":{"count":1,"spread":0,"measured_at":1e308}}],)"
          R"("devices":[],"layers":[],"nodes":[{"node":"a","failures":1e400}]})",
          "{\"format_version\":99}",
          "[[[[[[",
          ""};
}

}  // namespace adaptive_train::fuzz
