// A node's snapshot survives a round trip, and everything else is refused in one line.
#include "core/cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/limits.h"

namespace adaptive_train::cluster_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Json = nlohmann::ordered_json;

Node FullNode() {
  Node node;
  node.name = "n17";
  node.source = "prolog";
  node.taken_at = "2024-05-06T07:08:09Z";
  node.probe_seconds = 0.25;
  node.processors = {"AMD \"EPYC\" \\ 9354",
                     "avx512_bf16",
                     2,
                     8,
                     64,
                     128,
                     60,
                     120,
                     12.5,
                     {{1, 32768, 64}, {3, 268435456, 8}}};
  node.memory = {1'099'511'627'776, 1'000'000'000'000, {{500'000'000'000, "the job's --mem"}}};
  node.nics = {{"eth0", "ethernet", "up", 100'000'000'000, "0000:3b:00.0", "10.0.0.1"},
               {"ib0", "infiniband", "unknown", std::nullopt, "", "fe80::1"}};
  node.pci = {{"0000:3b:00.0", "Ethernet", "MT2892", 1, "0000:3a:00.0"},
              {"0000:00:02.0", "VGA", "", -1, ""}};
  node.gpus = {{0,
                "H200",
                "GPU-1234",
                "0000:4b:00.0",
                150'000'000'000,
                1,
                {"0000:5b:00.0", "0000:5b:00.0"}}};
  node.gpus_status.status = "GPU 1: fell off the bus";
  return node;
}

TEST(UsableMemory, IsTheLeastOfAll) {
  constexpr std::int64_t kGiB = std::int64_t{1} << 30;
  Memory memory{64 * kGiB, 0, {}};
  EXPECT_EQ(UsableMemory(memory).bytes, 64 * kGiB);
  EXPECT_EQ(DescribeMemory(memory), "64.0 GiB");
  memory.limits = {{8 * kGiB, "the job's --mem"}, {8 * kGiB, "control group /job_7"}};
  EXPECT_EQ(DescribeMemory(memory), "8.0 GiB of 64.0 GiB: the job's --mem");
  memory.available_bytes = 5 * kGiB + 7;
  EXPECT_EQ(UsableMemory(memory).bytes, 5 * kGiB);  // rounded to a 64th
  EXPECT_EQ(DescribeMemory(memory), "5.0 GiB of 64.0 GiB: what is free");
  memory.limits = {{128 * kGiB, "the job's --mem"}};
  memory.available_bytes = 0;  // unknown
  EXPECT_EQ(UsableMemory(memory).bytes, 64 * kGiB);
}

TEST(NodeJson, OfEarlierProgramsHasNoLimits) {
  auto json = nlohmann::json::parse(ToJson(FullNode()));
  json["memory"].erase("limits");
  const auto read = NodeFromJson(json.dump());
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_TRUE(read->memory.limits.empty());
}

TEST(NodeJson, KeepsEverything) {
  const auto read = NodeFromJson(ToJson(FullNode()));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(ToJson(*read), ToJson(FullNode()));
  EXPECT_EQ(read->name, "n17");
  EXPECT_EQ(read->source, "prolog");
  EXPECT_EQ(read->taken_at, "2024-05-06T07:08:09Z");
  EXPECT_EQ(read->probe_seconds, 0.25);
  EXPECT_EQ(read->processors.model, "AMD \"EPYC\" \\ 9354");
  EXPECT_EQ(read->processors.allowed_threads, 120);
  EXPECT_EQ(read->processors.quota_cpus, 12.5);
  ASSERT_EQ(read->processors.caches.size(), 2U);
  EXPECT_EQ(read->processors.caches[1].bytes, 268435456);
  EXPECT_EQ(read->memory.total_bytes, 1'099'511'627'776);
  ASSERT_EQ(read->memory.limits.size(), 1u);
  EXPECT_EQ(read->memory.limits[0].bytes, 500'000'000'000);
  EXPECT_EQ(read->memory.limits[0].by, "the job's --mem");
  ASSERT_EQ(read->nics.size(), 2U);
  EXPECT_EQ(read->nics[0].bits_per_second, 100'000'000'000);
  EXPECT_EQ(read->nics[1].bits_per_second, std::nullopt);
  EXPECT_EQ(read->pci[1].numa_node, -1);
  EXPECT_THAT(read->gpus[0].nvlink_peers, ElementsAre("0000:5b:00.0", "0000:5b:00.0"));
  EXPECT_EQ(read->gpus_status.status, "GPU 1: fell off the bus");
  EXPECT_TRUE(read->nics_status.Ok());
}

TEST(NodeJson, IsOneLine) { EXPECT_EQ(ToJson(FullNode()).find('\n'), std::string::npos); }

TEST(NodeJson, KeepsAnEmptyNode) {
  const auto read = NodeFromJson(ToJson(Node{}));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(ToJson(*read), ToJson(Node{}));
}

TEST(NodeJson, ReplacesNamesThatAreNotUtf8) {
  Node node;
  node.pci = {{"0000:00:02.0", "VGA", "bad \xff name", 0, ""}};
  const auto read = NodeFromJson(ToJson(node));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->pci[0].name, "bad \xef\xbf\xbd name");
}

TEST(NodeJson, IgnoresUnknownMembers) {
  Json json = Json::parse(ToJson(FullNode()));
  json["weather"] = "fine";
  json["processors"]["colour"] = 7;
  const auto read = NodeFromJson(json.dump());
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(ToJson(*read), ToJson(FullNode()));
}

TEST(NodeJson, RefusesANewerVersion) {
  Json json = Json::parse(ToJson(FullNode()));
  json["format_version"] = 2;
  const auto read = NodeFromJson(json.dump());
  ASSERT_FALSE(read);
  EXPECT_THAT(read.error().message, HasSubstr("format_version 2"));
}

TEST(NodeJson, RefusesGarbageInOneLine) {
  std::string deep(200'000, '[');
  const std::string garbage[] = {"",
                                 "{",
                                 "{}",
                                 "[]",
                                 "null",
                                 "17",
                                 "\"text\"",
                                 "no json at all\n\n",
                                 deep,
                                 std::string(1000, '\0'),
                                 std::string(kMaxSnapshotBytes + 1, ' '),
                                 ToJson(FullNode()).substr(0, 200),
                                 ToJson(FullNode()) + "}",
                                 "{\"format_version\":0}",
                                 "{\"format_version\":\"1\"}"};
  for (const std::string& text : garbage) {
    const auto read = NodeFromJson(text);
    ASSERT_FALSE(read) << text.substr(0, 80);
    EXPECT_THAT(read.error().message, HasSubstr("node snapshot"));
    EXPECT_EQ(read.error().message.find('\n'), std::string::npos);
    EXPECT_LT(read.error().message.size(), 300U);
  }
}

struct WrongMember {
  const char* pointer;
  const char* value;
  const char* says;
};

constexpr WrongMember kWrong[] = {
    {"/name", "7", "name: not a string"},
    {"/name", "\"a\\u001b[31m\"",
     "name: not a string of at most 1024 bytes without control characters"},
    {"/probe_seconds", "-1", "probe_seconds: not a number from 0 up"},
    {"/processors", "[]", "processors: not an object"},
    {"/processors/cores", "1e300", "processors.cores: not a whole number"},
    {"/processors/cores", "-1", "processors.cores: not a whole number"},
    {"/processors/cores", "18446744073709551615", "processors.cores: not a whole number"},
    {"/processors/quota_cpus", "\"1\"", "processors.quota_cpus: not a number"},
    {"/processors/caches/1/bytes", "null", "processors.caches[1].bytes: not a whole number"},
    {"/memory/total_bytes", "9223372036854775808", "memory.total_bytes: not a whole number"},
    {"/nics/list", "{}", "nics.list: not a list"},
    {"/nics/list/0", "3", "nics.list[0]: not an object"},
    {"/nics/list/1/bits_per_second", "1.5", "nics.list[1].bits_per_second: not a whole number"},
    {"/pci/list/0/numa_node", "-2", "pci.list[0].numa_node: not a whole number"},
    {"/gpus/list/0/nvlink_peers", "[1]", "gpus.list[0].nvlink_peers: not a string"},
    {"/gpus/status", "false", "gpus.status: not a string"},
};

TEST(NodeJson, NamesTheMemberThatIsWrong) {
  for (const WrongMember& wrong : kWrong) {
    Json json = Json::parse(ToJson(FullNode()));
    json[Json::json_pointer(wrong.pointer)] = Json::parse(wrong.value);
    const auto read = NodeFromJson(json.dump());
    ASSERT_FALSE(read) << wrong.pointer;
    EXPECT_THAT(read.error().message, HasSubstr(wrong.says));
  }
}

TEST(NodeJson, NamesTheMemberThatIsMissing) {
  Json json = Json::parse(ToJson(FullNode()));
  json["gpus"]["list"][0].erase("uuid");
  EXPECT_THAT(NodeFromJson(json.dump()).error().message, HasSubstr("gpus.list[0].uuid: missing"));
}

TEST(NodeJson, RefusesListsWithoutEnd) {
  Json json = Json::parse(ToJson(Node{}));
  json["pci"]["list"] = Json(std::vector<int>(5000, 1));
  EXPECT_THAT(NodeFromJson(json.dump()).error().message,
              HasSubstr("pci.list: not a list of at most 4096 entries"));
}

TEST(ClusterJson, HoldsNodesAndDevices) {
  Cluster cluster;
  cluster.name = "lab";
  cluster.nodes = {FullNode(), Node{}};
  cluster.nodes[1].name = "n18";
  cluster.devices = {{"n17", "cuda", 0, "H200", 150'000'000'000, 4}, {"n17", "cuda", 1, ""}};
  cluster.devices[1].uuid = "GPU-01234567-89ab-cdef-0123-456789abcdef";
  cluster.devices[1].nccl = "2.28.9";
  const Json json = Json::parse(ToJson(cluster));
  EXPECT_EQ(json.at("format_version"), 1);
  EXPECT_EQ(json.at("name"), "lab");
  ASSERT_EQ(json.at("nodes").size(), 2U);
  EXPECT_EQ(json.at("nodes")[0], Json::parse(ToJson(FullNode())));
  EXPECT_EQ(
      json.at("devices")[0].dump(),
      R"({"node":"n17","kind":"cuda","index":0,"model":"H200","memory_bytes":150000000000,"threads":4,"cpus":0.0,"product_flops":0.0,"copy_bytes_per_second":0.0})");
  EXPECT_EQ(json.at("devices")[1].at("uuid"), "GPU-01234567-89ab-cdef-0123-456789abcdef");
  const auto back = ClusterFromJson(ToJson(cluster));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->devices, cluster.devices);
}

}  // namespace
}  // namespace adaptive_train::cluster_test
