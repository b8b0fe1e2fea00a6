// Cluster files: both forms are read, and nonsense is refused in one line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/cluster.h"

namespace adaptive_train::cluster_file_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::string kGroups = R"({"format_version": 1, "name": "lab",
  "switches": [{"name": "core"}, {"name": "s1", "parent": "core", "gbit_per_s": 80, "latency_us": 1}],
  "groups": [
    {"prefix": "a", "nodes": 2, "switch": "s1", "nic_gbit_per_s": 8, "latency_us": 5, "inside_gb_per_s": 100,
     "device": {"kind": "cuda", "model": "A", "count": 4, "memory_gib": 80, "tflops": 100}},
    {"prefix": "b", "nodes": 1, "nic_gbit_per_s": 1,
     "device": {"kind": "cpu", "model": "B", "memory_gib": 16, "tflops": 1, "threads": 8}}],
  "links": [{"from": "a1", "to": "b1", "gbit_per_s": 0.8, "latency_us": 100}]})";

std::string Replaced(std::string text, const std::string& what, const std::string& by) {
  const auto at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return text.replace(at, what.size(), by);
}

std::string ErrorOf(const std::string& text) {
  auto cluster = ClusterFromJson(text);
  if (cluster) return "no error";
  EXPECT_EQ(cluster.error().message.find('\n'), std::string::npos);
  return cluster.error().message;
}

TEST(ClusterFile, GroupsBecomeNodesAndDevices) {
  auto cluster = ClusterFromJson(kGroups);
  ASSERT_TRUE(cluster) << cluster.error().message;
  ASSERT_EQ(cluster->nodes.size(), 3u);
  EXPECT_EQ(cluster->nodes[1].name, "a2");
  EXPECT_THAT(cluster->nodes[1].switches, ElementsAre("core", "s1"));
  ASSERT_EQ(cluster->devices.size(), 9u);
  EXPECT_EQ(cluster->devices[7].index, 3);
  EXPECT_EQ(cluster->devices[7].product_flops, 1e14);
  EXPECT_EQ(cluster->devices[7].memory_bytes, std::int64_t{80} << 30);
  EXPECT_EQ(cluster->devices[8].threads, 8);
  EXPECT_EQ(cluster->nodes[2].nics[0].bits_per_second, 1'000'000'000);
  EXPECT_DOUBLE_EQ(cluster->switches[1].bytes_per_second, 1e10);
  // Inside of a1 and a2, and the pair.
  ASSERT_EQ(cluster->links.size(), 3u);
  EXPECT_DOUBLE_EQ(cluster->links[2].bytes_per_second, 1e8);
  EXPECT_DOUBLE_EQ(cluster->links[2].latency_s, 1e-4);
}

TEST(ClusterFile, WhatARunSavedReadsBack) {
  auto cluster = ClusterFromJson(kGroups);
  ASSERT_TRUE(cluster);
  cluster->devices[8].cpus = 1.5;
  auto back = ClusterFromJson(ToJson(*cluster));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(ToJson(*back), ToJson(*cluster));
}

TEST(ClusterFile, RefusesWhatMakesNoSense) {
  EXPECT_THAT(ErrorOf(Replaced(kGroups, "\"gbit_per_s\": 0.8", "\"gbit_per_s\": 0")),
              HasSubstr("links[0].gbit_per_s: not a number above 0"));
  EXPECT_THAT(ErrorOf(Replaced(kGroups, "\"gbit_per_s\": 0.8", "\"gbit_per_s\": 1e999")),
              HasSubstr("cluster"));
  EXPECT_THAT(ErrorOf(Replaced(kGroups, "\"to\": \"b1\"", "\"to\": \"c1\"")),
              HasSubstr("no such node"));
  EXPECT_THAT(ErrorOf(Replaced(kGroups, "\"prefix\": \"b\"", "\"prefix\": \"a\"")),
              HasSubstr("a1"));
  EXPECT_THAT(ErrorOf(Replaced(kGroups, "\"tflops\": 100", "\"tflops\": -1")), HasSubstr("tflops"));
  EXPECT_THAT(ErrorOf(Replaced(kGroups, "\"nodes\": 2", "\"nodes\": 1000000")),
              HasSubstr("not a whole number from 1 to 8192"));
  EXPECT_THAT(ErrorOf(Replaced(kGroups, "{\"name\": \"core\"}",
                               "{\"name\": \"core\", \"parent\": \"s1\"}")),
              HasSubstr("is above itself"));
  EXPECT_THAT(ErrorOf(Replaced(kGroups, "\"parent\": \"core\"", "\"parent\": \"x\"")),
              HasSubstr("its parent x is not in the list"));
  EXPECT_THAT(ErrorOf(Replaced(kGroups, "\"switch\": \"s1\"", "\"switch\": \"s11\"")),
              HasSubstr("groups[0].switch: not in the list of switches"));
  // Deep enough to exhaust the stack of a recursive parser.
  EXPECT_THAT(ErrorOf("{\"format_version\": 1, \"name\": \"x\", \"devices\": [], \"nodes\": [" +
                      std::string(300000, '[') + std::string(300000, ']') + "]}"),
              HasSubstr("nodes[0]: not an object"));
  EXPECT_THAT(ErrorOf(Replaced(kGroups, "\"format_version\": 1", "\"format_version\": 9")),
              HasSubstr("format_version 9"));
  for (const char* text : {"", "{", "[]", "{\"format_version\": 1}",
                           "{\"format_version\": 1, \"name\": \"x\", \"groups\": []}",
                           "{\"format_version\": 1, \"name\": \"x\", \"nodes\": 3}"})
    EXPECT_NE(ErrorOf(text), "no error") << text;
}

}  // namespace
}  // namespace adaptive_train::cluster_file_test
