// Attention: causal or not, with equally many or fewer key heads than query heads.
#include "kernels/attention.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/sanitized.h"
#include "tests/unit/kernels/agreement.h"

namespace adaptive_train::kernels::attention_test {
namespace {

std::int64_t QkvSize(const AttentionShape& shape) {
  return shape.batch * shape.sequence * (shape.heads + 2 * shape.kv_heads) * shape.head_size;
}
std::int64_t OutputSize(const AttentionShape& shape) {
  return shape.batch * shape.sequence * shape.heads * shape.head_size;
}
std::int64_t Queries(const AttentionShape& shape) {
  return shape.batch * shape.heads * shape.sequence;
}

/// Input: qkv.
struct ForwardCase {
  AttentionShape shape;

  Arrays Inputs() const { return {RandomArray(QkvSize(shape), 1)}; }
  template <class T>
  Outputs Run(Device<T>& device, const Arrays& in) const {
    const auto qkv = ToDevice<T>(device, in[0]);
    auto output = Unread<T>(device, OutputSize(shape));
    auto log_sum_exp = Unread<Accumulator<T>>(device, Queries(shape));
    device.Attention({shape, qkv.data(), output.data(), log_sum_exp.data()});
    return {{Op::kAttention, ToHost(output)}, {Op::kLogSumExp, ToHost(log_sum_exp), true}};
  }
};

/// Inputs: qkv, d_output, and the results of forward: output and log_sum_exp.
struct BackwardCase {
  AttentionShape shape;

  Arrays Inputs() const {
    reference::ReferenceDevice<double> device;
    const Arrays in = ForwardCase{shape}.Inputs();
    const Outputs forward = ForwardCase{shape}.Run(device, in);
    return {in[0], RandomArray(OutputSize(shape), 2), forward[0].values, forward[1].values};
  }
  template <class T>
  Outputs Run(Device<T>& device, const Arrays& in) const {
    const auto qkv = ToDevice<T>(device, in[0]), d_output = ToDevice<T>(device, in[1]),
               output = ToDevice<T>(device, in[2]);
    const auto log_sum_exp = ToDevice<Accumulator<T>>(device, in[3]);
    auto d_qkv = Unread<T>(device, QkvSize(shape));
    device.AttentionBackward({.shape = shape,
                              .qkv = qkv.data(),
                              .output = output.data(),
                              .log_sum_exp = log_sum_exp.data(),
                              .d_output = d_output.data(),
                              .d_qkv = d_qkv.data()});
    return {{Op::kAttentionBackward, ToHost(d_qkv)}};
  }
};

/// Forward and backward together. Inputs: qkv, d_output. Outputs: output, d_qkv.
struct BothCase {
  AttentionShape shape;

  template <class T>
  Outputs Run(Device<T>& device, const Arrays& in) const {
    const Outputs forward = ForwardCase{shape}.Run(device, {in[0]});
    const Outputs backward =
        BackwardCase{shape}.Run(device, {in[0], in[1], forward[0].values, forward[1].values});
    return {forward[0], backward[0]};
  }
};

/// Some are longer than a run of queries and a block of keys on the CPU; the last ones have several
/// tiles of a GPU.
std::vector<AttentionShape> Shapes() {
  return {{0, 3, 2, 1, 4},   {2, 0, 2, 2, 4},    {1, 1, 1, 1, 1},    {2, 5, 3, 3, 3},
          {1, 24, 4, 2, 8},  {1, 64, 2, 2, 64},  {2, 97, 6, 2, 17},  {1, 50, 4, 1, 80},
          {1, 31, 0, 1, 5},  {1, 40, 2, 1, 144}, {1, 300, 2, 1, 40}, {1, 530, 2, 1, 3},
          {1, 601, 1, 1, 5}, {1, 97, 2, 1, 64},  {1, 97, 2, 1, 128}};
}

/// What takes seconds is left to faster devices and builds. Every code path has a shorter one.
std::int64_t LongestSequence() {
#if defined(ADAPTIVE_TRAIN_EMULATED_UNIT)
  return 350;
#else
  return SlowDevice() ? 100 : kSanitized ? 550 : 1000;
#endif
}

template <class Case>
void ExpectAgreementInAllShapes() {
  for (AttentionShape shape : Shapes()) {
    if (shape.sequence > LongestSequence()) continue;
    for (const bool causal : {true, false}) {
      shape.causal = causal;
      SCOPED_TRACE(testing::Message() << "sequence " << shape.sequence << ", heads " << shape.heads
                                      << ", causal " << causal);
      ExpectAgreement(Case{shape});
    }
  }
}

TEST(Attention, AgreesWithTheReference) { ExpectAgreementInAllShapes<ForwardCase>(); }

TEST(Attention, BackwardAgreesWithTheReference) { ExpectAgreementInAllShapes<BackwardCase>(); }

TEST(Attention, Gradients) {
  for (const AttentionShape& shape :
       {AttentionShape{2, 5, 2, 2, 3, true}, AttentionShape{2, 4, 4, 2, 2, false},
        AttentionShape{1, 4, 3, 1, 1, true}, AttentionShape{1, 1, 1, 1, 1, false}}) {
    ExpectGradients(BothCase{shape},
                    {RandomArray(QkvSize(shape), 1), RandomArray(OutputSize(shape), 2)}, {{0, 1}},
                    [](const Arrays& in, const Outputs& out) { return Dot(in[1], out[0].values); });
  }
}

// Scores of 0 give means: the first query sees only its own value, the second both if it may.
TEST(Attention, ByHand) {
  reference::ReferenceDevice<double> device;
  ForwardCase a_case{{.batch = 1, .sequence = 2, .heads = 2, .kv_heads = 1, .head_size = 1}};
  const Arrays in{{0, 0, 7, 1, 0, 0, 8, 3}};
  EXPECT_EQ((Array{1, 1, 2, 2}), a_case.Run(device, in)[0].values);
  a_case.shape.causal = false;
  EXPECT_EQ((Array{2, 2, 2, 2}), a_case.Run(device, in)[0].values);
  EXPECT_DOUBLE_EQ(std::log(2.0), a_case.Run(device, in)[1].values[0]);
}

TEST(Attention, LargeScoresDoNotOverflow) {
  const ForwardCase a_case{
      {.batch = 1, .sequence = 40, .heads = 1, .kv_heads = 1, .head_size = 16}};
  Arrays in = a_case.Inputs();
  for (double& value : in[0]) value *= 30;
  TestedDevice<float> device(1);
  for (const Output& output : a_case.Run(device, in)) {
    for (const double value : output.values) EXPECT_TRUE(std::isfinite(value));
  }
}

}  // namespace
}  // namespace adaptive_train::kernels::attention_test
