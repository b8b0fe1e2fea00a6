// The embedding and its gradients.
#include "kernels/embedding.h"

#include <gtest/gtest.h>

#include "tests/unit/kernels/agreement.h"

namespace adaptive_train::kernels::embedding_test {
namespace {

constexpr std::int64_t kVocab = 11;

/// Inputs: token, position and type weight, d_output, then the previous gradients of the weights.
struct EmbeddingCase {
  std::int64_t batch, sequence, columns;
  bool has_position = true, has_type = true, has_token_gradient = true;
  std::int32_t first = 0;  // another rank has the tokens below

  Arrays Inputs() const {
    return {RandomArray(kVocab * columns, 1), RandomArray(sequence * columns, 2),
            RandomArray(columns, 3),          RandomArray(batch * sequence * columns, 4),
            RandomArray(kVocab * columns, 5), RandomArray(sequence * columns, 6),
            RandomArray(columns, 7)};
  }

  template <class T>
  Outputs Run(Device<T>& device, const Arrays& in) const {
    using Sum = Accumulator<T>;
    std::vector<std::int32_t> counted = RandomTokens(batch * sequence, kVocab);
    for (std::int32_t& token : counted) token = token < first ? -1 : token - first;
    const auto tokens = TokensToDevice(device, counted);
    const auto token = ToDevice<T>(device, in[0]), position = ToDevice<T>(device, in[1]);
    const auto type = ToDevice<T>(device, in[2]), d_output = ToDevice<T>(device, in[3]);
    auto d_token = ToDevice<Sum>(device, in[4]), d_position = ToDevice<Sum>(device, in[5]);
    auto d_type = ToDevice<Sum>(device, in[6]);
    auto output = Unread<T>(device, batch * sequence * columns);
    device.Embedding({.batch = batch,
                      .sequence = sequence,
                      .columns = columns,
                      .tokens = tokens.data(),
                      .token_weight = token.data(),
                      .position_weight = has_position ? position.data() : nullptr,
                      .type_weight = has_type ? type.data() : nullptr,
                      .output = output.data()});
    device.EmbeddingBackward({.batch = batch,
                              .sequence = sequence,
                              .columns = columns,
                              .tokens = tokens.data(),
                              .d_output = d_output.data(),
                              .d_token_weight = has_token_gradient ? d_token.data() : nullptr,
                              .d_position_weight = has_position ? d_position.data() : nullptr,
                              .d_type_weight = has_type ? d_type.data() : nullptr});
    return {{Op::kEmbedding, ToHost(output)},
            {Op::kEmbeddingBackward, ToHost(d_token), true},
            {Op::kEmbeddingBackward, ToHost(d_position), true},
            {Op::kEmbeddingBackward, ToHost(d_type), true}};
  }
};

TEST(Embedding, AgreesWithTheReference) {
  for (const std::int64_t columns : {1, 5, 16, 67, 200}) {
    ExpectAgreement(EmbeddingCase{3, 7, columns});
    ExpectAgreement(EmbeddingCase{3, 7, columns, false, false});
    ExpectAgreement(EmbeddingCase{3, 7, columns, true, false, false});
    ExpectAgreement(EmbeddingCase{3, 7, columns, false, true});
    ExpectAgreement(EmbeddingCase{3, 7, columns, true, true, true, 4});
    ExpectAgreement(EmbeddingCase{3, 7, columns, false, false, true, 4});
  }
  ExpectAgreement(EmbeddingCase{0, 4, 8});
  ExpectAgreement(EmbeddingCase{2, 3, 0});
  ExpectAgreement(EmbeddingCase{40, 31, 33});
}

TEST(Embedding, GradientsAreThoseOfTheForward) {
  const EmbeddingCase a_case{3, 4, 2};
  Arrays in = a_case.Inputs();
  for (const std::size_t before : {4, 5, 6}) in[before].assign(in[before].size(), 0.0);
  ExpectGradients(a_case, in, {{0, 1}, {1, 2}, {2, 3}},
                  [](const Arrays& inputs, const Outputs& outputs) {
                    return Dot(inputs[3], outputs[0].values);
                  });
}

TEST(Embedding, OfATokenThatAnotherRankHasIsNothing) {
  reference::ReferenceDevice<double> device;
  const EmbeddingCase none{3, 7, 5, false, false, true, static_cast<std::int32_t>(kVocab)};
  const Arrays in = none.Inputs();
  const Outputs outputs = none.Run(device, in);
  EXPECT_EQ(outputs[0].values, Array(std::size_t{3} * 7 * 5, 0.0));
  EXPECT_EQ(outputs[1].values, in[4]);
}

}  // namespace
}  // namespace adaptive_train::kernels::embedding_test
