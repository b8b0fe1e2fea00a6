// GELU and SwiGLU.
#include <gtest/gtest.h>

#include "tests/unit/kernels/agreement.h"

namespace adaptive_train::kernels::gated_units_test {
namespace {

/// Includes large and small values.
Array SpreadArray(std::int64_t count, std::uint32_t which) {
  Array values = RandomArray(count, which);
  for (std::size_t i = 0; i < values.size(); i += 3) values[i] *= 6;
  return values;
}

/// Inputs: input, d_output.
struct GeluCase {
  GeluForm form;
  std::int64_t count;
  bool in_place = false;

  Arrays Inputs() const { return {SpreadArray(count, 1), RandomArray(count, 2)}; }

  template <class T>
  Outputs Run(Device<T>& device, const Arrays& in) const {
    const auto input = ToDevice<T>(device, in[0]);
    auto output = ToDevice<T>(device, in[0]), d_output = ToDevice<T>(device, in[1]);
    auto d_input = Unread<T>(device, count);
    device.Gelu({.count = count,
                 .form = form,
                 .input = in_place ? output.data() : input.data(),
                 .output = output.data()});
    device.GeluBackward({.count = count,
                         .form = form,
                         .input = input.data(),
                         .d_output = d_output.data(),
                         .d_input = in_place ? d_output.data() : d_input.data()});
    return {{Op::kGelu, ToHost(output)},
            {Op::kGeluBackward, ToHost(in_place ? d_output : d_input)}};
  }
};

/// Inputs: input, d_output.
struct SwigluCase {
  std::int64_t rows, columns;
  bool in_place = false;

  Arrays Inputs() const {
    return {SpreadArray(rows * 2 * columns, 1), RandomArray(rows * columns, 2)};
  }

  template <class T>
  Outputs Run(Device<T>& device, const Arrays& in) const {
    auto input = ToDevice<T>(device, in[0]);
    const auto d_output = ToDevice<T>(device, in[1]);
    auto output = Unread<T>(device, rows * columns),
         d_input = Unread<T>(device, rows * 2 * columns);
    device.Swiglu(
        {.rows = rows, .columns = columns, .input = input.data(), .output = output.data()});
    device.SwigluBackward({.rows = rows,
                           .columns = columns,
                           .input = input.data(),
                           .d_output = d_output.data(),
                           .d_input = in_place ? input.data() : d_input.data()});
    return {{Op::kSwiglu, ToHost(output)},
            {Op::kSwigluBackward, ToHost(in_place ? input : d_input)}};
  }
};

double ObjectiveOf(const Arrays& inputs, const Outputs& outputs) {
  return Dot(inputs[1], outputs[0].values);
}

TEST(Gelu, AgreesWithTheReference) {
  for (const GeluForm form : {GeluForm::kTanh, GeluForm::kErf}) {
    for (const std::int64_t count : {0, 1, 3, 16, 61, 1000, 16384, 40009}) {
      ExpectAgreement(GeluCase{form, count, count % 2 == 1});
    }
  }
}

TEST(Gelu, GradientIsThatOfTheForward) {
  for (const GeluForm form : {GeluForm::kTanh, GeluForm::kErf}) {
    const GeluCase a_case{form, 50};
    ExpectGradients(a_case, a_case.Inputs(), {{0, 1}}, ObjectiveOf);
  }
}

TEST(Swiglu, AgreesWithTheReference) {
  for (const std::int64_t columns : {1, 5, 16, 47, 256, 1021}) {
    ExpectAgreement(SwigluCase{7, columns});
    ExpectAgreement(SwigluCase{7, columns, true});
  }
  ExpectAgreement(SwigluCase{0, 4});
  ExpectAgreement(SwigluCase{3, 0});
  ExpectAgreement(SwigluCase{2001, 19});
}

TEST(Swiglu, GradientIsThatOfTheForward) {
  const SwigluCase a_case{3, 11};
  ExpectGradients(a_case, a_case.Inputs(), {{0, 1}}, ObjectiveOf);
}

}  // namespace
}  // namespace adaptive_train::kernels::gated_units_test
