// Loss and every gradient against figures that PyTorch computed once (fixtures/make_fixtures.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/reference/reference_device.h"
#include "runtime/model/transformer_stage.h"
#include "tests/unit/runtime_model/fixture.h"

namespace adaptive_train::model_fixture_test {
namespace {

class ModelFixture : public testing::TestWithParam<const char*> {};

TEST_P(ModelFixture, LossAndGradientsAreThoseOfPyTorch) {
  const Fixture fixture = Fixture::Load(GetParam());
  kernels::reference::ReferenceDevice<double> device;
  std::vector<double> gradients(fixture.parameters.size());
  const ParameterLayout layout(fixture.dims, StageSlice::Whole(fixture.dims));
  const StageOptions options{.micro_batch = fixture.batch};
  StageWorkspace<double> workspace(fixture.dims, true, options, device);
  TransformerStage<double> stage(fixture.dims, StageSlice::Whole(fixture.dims), options, device,
                                 {layout, fixture.parameters, gradients}, workspace);
  MicroBatchState<double> state = stage.NewState();
  const double loss =
      stage.ForwardBackward(state, {fixture.tokens, fixture.targets, fixture.batch, {}}, 1);
  EXPECT_NEAR(fixture.loss_sum, loss, 1e-11 * fixture.loss_sum);
  for (const ParameterRange& range : layout.ranges()) {
    double worst = 0, largest = 0;
    for (auto i = static_cast<std::size_t>(range.offset);
         i < static_cast<std::size_t>(range.offset + range.count); ++i) {
      worst = std::max(worst, std::abs(gradients[i] - fixture.gradients[i]));
      largest = std::max(largest, std::abs(fixture.gradients[i]));
    }
    EXPECT_LE(worst, 1e-10 * largest) << range.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, ModelFixture, testing::Values("gpt2", "llama", "bert"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace adaptive_train::model_fixture_test
