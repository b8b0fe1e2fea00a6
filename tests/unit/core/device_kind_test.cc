// Names of device kinds and models: everything that changes a layer's time changes the name.
#include "core/device_kind.h"

#include <gtest/gtest.h>

#include <set>

namespace adaptive_train::device_kind_test {
namespace {

TEST(DeviceKind, NamesModelThreadsAndCpusThatAreFewer) {
  Device device;
  device.kind = "cpu";
  device.model = "AMD EPYC 9354";
  EXPECT_EQ(DeviceKindName(device), "AMD EPYC 9354, 1 thread");
  device.cpus = 0.56;
  EXPECT_EQ(DeviceKindName(device), "AMD EPYC 9354, 1 thread, 0.56 CPUs");
  device.threads = 2;
  device.cpus = 2;
  EXPECT_EQ(DeviceKindName(device), "AMD EPYC 9354, 2 threads");
  device.model.clear();
  EXPECT_EQ(DeviceKindName(device), "unknown cpu, 2 threads");
  device.kind = "cuda";
  device.model = "NVIDIA H200";
  EXPECT_EQ(DeviceKindName(device), "NVIDIA H200");
}

TEST(ModelKey, TellsApartWhatChangesALayersTime) {
  const ModelDims dims{.layers = 6, .heads = 6, .hidden = 384, .sequence = 256, .vocab = 8192};
  std::set<std::string> keys = {ModelKey(ModelShape::Of(dims))};
  const auto differs = [&](ModelDims other, TrainingFormat format = {}) {
    return keys.insert(ModelKey(ModelShape::Of(other, format))).second;
  };
  const auto with = [&](auto field, auto value) {
    ModelDims other = dims;
    other.*field = value;
    return other;
  };
  EXPECT_FALSE(differs(with(&ModelDims::layers, 12)));
  EXPECT_TRUE(differs(with(&ModelDims::heads, 12)));
  EXPECT_TRUE(differs(with(&ModelDims::hidden, 768)));
  EXPECT_TRUE(differs(with(&ModelDims::sequence, 128)));
  EXPECT_TRUE(differs(with(&ModelDims::vocab, 256)));
  EXPECT_TRUE(differs(with(&ModelDims::tie_embeddings, false)));
  EXPECT_TRUE(differs(with(&ModelDims::kind, ModelKind::kLlama)));
  EXPECT_TRUE(differs(with(&ModelDims::ffn, 1024)));
  EXPECT_TRUE(differs(with(&ModelDims::head_size, 32)));
  EXPECT_TRUE(differs(with(&ModelDims::attention_bias, AttentionBias::kQkv)));
  EXPECT_FALSE(differs(with(&ModelDims::rope_base, 5e5)));
  EXPECT_TRUE(differs(dims, {.precision = Precision::kBf16}));
  EXPECT_TRUE(differs(dims, {.precision = Precision::kFp16}));
  EXPECT_FALSE(differs(dims, {.recompute = Recompute::kSelective}));
  EXPECT_FALSE(differs(dims, {.recompute = Recompute::kFull}));
  EXPECT_TRUE(differs(dims, {.dropout = true}));
  EXPECT_NE(keys.begin()->find(ADAPTIVE_TRAIN_VERSION), std::string::npos);
}

}  // namespace
}  // namespace adaptive_train::device_kind_test
