// What every reader of core does with documents that are cut off or hold what nobody expects.
#include "tests/unit/odd_documents.h"

#include "core/cluster.h"
#include "core/control_message.h"
#include "core/evaluation.h"
#include "core/measure_order.h"
#include "core/plan.h"
#include "core/profile.h"

namespace adaptive_train::odd_documents_test {
namespace {

const Evidence kEvidence{3, 0.05, 1.8e9};

TEST(OddDocuments, OfANode) {
  Node node;
  node.name = "n17";
  node.processors.quota_cpus = 1.5;
  node.processors.caches = {{1, 32768, 2}};
  node.memory.limits = {{1 << 20, "the job's --mem"}};
  node.nics = {{"eth0", "ethernet", "up", 100'000'000'000, "0000:3b:00.0", "10.0.0.1"}};
  node.pci = {{"0000:3b:00.0", "Ethernet", "MT2892", 1, "0000:3a:00.0"}};
  node.gpus = {{0, "H200", "GPU-1", "0000:4b:00.0", 1 << 30, 1, {"0000:5b:00.0"}}};
  ExpectOddDocumentsRefused(ToJson(node), NodeFromJson);
}

TEST(OddDocuments, OfACluster) {
  ExpectOddDocumentsRefused(
      R"({"format_version": 1, "name": "lab", "switches": [{"name": "s", "gbit_per_s": 100},
          {"name": "t", "parent": "s", "latency_us": 2}],
          "groups": [{"prefix": "a", "nodes": 2, "switch": "t", "nic_gbit_per_s": 10,
          "device": {"kind": "cpu", "model": "EPYC", "memory_gib": 16, "tflops": 1}}],
          "links": [{"from": "a1", "to": "a2", "gbit_per_s": 1, "latency_us": 9}]})",
      ClusterFromJson);
}

TEST(OddDocuments, OfAPlan) {
  Plan plan;
  plan.global_batch = 1;
  plan.data = 1;
  plan.step_seconds = 0.5;
  plan.why = {"because"};
  plan.alternatives = {{"a", "b", 0.7}};
  plan.stages = {{{{0, 4}}, {0}, {2}, {}}};
  plan.ranks.emplace_back();
  plan.ranks[0].device.node = "n1";
  plan.ranks[0].samples = 1;
  ExpectOddDocumentsRefused(ToJson(plan), PlanFromJson);
}

TEST(OddDocuments, OfAProfile) {
  Profile profile;
  profile.links = {{"n1", "n2", 5e-5, 1.2e8, kEvidence}};
  profile.devices.emplace_back();
  profile.devices[0].device_kind = "cpu, 4 threads";
  profile.devices[0].product_flops = profile.devices[0].bytes_per_second = 1e10;
  profile.devices[0].evidence = kEvidence;
  profile.layers = {
      {"cpu, 4 threads", "gpt2 384", "block", 2, 0.01, 0.02, 0.01, 1e-3, 1e-7, kEvidence}};
  profile.nodes = {{"n1", 0.5}};
  ExpectOddDocumentsRefused(ToJson(profile), ProfileFromJson);
}

TEST(OddDocuments, OfAMeasureOrder) {
  MeasureOrder order;
  order.nodes = {{"n1", "EPYC", 4, true}, {"n2", "Xeon", 8, false}};
  order.rounds = {{{0, 1}}};
  ExpectOddDocumentsRefused(ToJson(order), MeasureOrderFromJson);
}

TEST(OddDocuments, OfAControlMessage) {
  const std::string frame = EncodeFrame(Hello{3, "n1", 42, "7.0", "nonce", "proof"});
  for (std::size_t size = 0; size + 4 < frame.size(); ++size) {
    FrameReader reader;
    reader.Feed(std::string("\0\0\0", 3) + static_cast<char>(size) + frame.substr(4, size));
    const auto message = reader.Next();
    ASSERT_FALSE(message);
    EXPECT_EQ(message.error().message.find("json.exception"), std::string::npos)
        << message.error().message;
  }
}

TEST(OddDocuments, OfAnEvaluation) {
  EvaluationRequest request;
  request.dims = {.layers = 2, .heads = 4, .hidden = 32, .sequence = 16, .vocab = 300};
  request.text_vocab = 299;
  ExpectOddDocumentsRefused(ToJson(request), EvaluationRequestFromJson);
  Evaluation evaluation;
  evaluation.loss = 2.5;
  ExpectOddDocumentsRefused(ToJson(evaluation), EvaluationFromJson);
}

}  // namespace
}  // namespace adaptive_train::odd_documents_test
