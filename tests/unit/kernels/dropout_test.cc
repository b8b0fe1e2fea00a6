// Dropout.
#include "kernels/dropout.h"

#include <gtest/gtest.h>

#include "tests/unit/kernels/agreement.h"

namespace adaptive_train::kernels::dropout_test {
namespace {

/// Inputs: input, residual.
struct DropoutCase {
  std::int64_t batch, elements;
  double probability = 0.25;
  bool has_residual = false;
  enum { kApart, kOverInput, kOverResidual } output = kApart;

  Arrays Inputs() const {
    return {RandomArray(batch * elements, 1), RandomArray(batch * elements, 2)};
  }

  template <class T>
  Outputs Run(Device<T>& device, const Arrays& in) const {
    auto input = ToDevice<T>(device, in[0]), residual = ToDevice<T>(device, in[1]);
    auto apart = Unread<T>(device, batch * elements);
    Buffer<T>& to = output == kOverInput ? input : output == kOverResidual ? residual : apart;
    device.Dropout({.elements = elements,
                    .end = batch * elements,
                    .probability = probability,
                    .random = CounterRandom(5, RandomPurpose::kDropout),
                    .step = 0xfffffff0,
                    .first_sample = 1000000,
                    .layer = 0xfffe,
                    .input = input.data(),
                    .residual = has_residual ? residual.data() : nullptr,
                    .output = to.data()});
    return {{Op::kDropout, ToHost(to)}};
  }
};

// The reference asks CounterRandom for every number; a wrong number would show as a 0.
TEST(Dropout, AgreesWithTheReference) {
  for (const std::int64_t elements : {1, 4, 5, 31, 32, 33, 127, 1000, 16387}) {
    ExpectAgreement(DropoutCase{3, elements});
    ExpectAgreement(DropoutCase{2, elements, 0.5, true});
  }
  ExpectAgreement(DropoutCase{0, 8});
  ExpectAgreement(DropoutCase{3, 0});
}

TEST(Dropout, OutputMayBeInputOrResidual) {
  ExpectAgreement(DropoutCase{2, 77, 0.1, false, DropoutCase::kOverInput});
  ExpectAgreement(DropoutCase{2, 77, 0.1, true, DropoutCase::kOverInput});
  ExpectAgreement(DropoutCase{2, 77, 0.1, true, DropoutCase::kOverResidual});
}

/// Parts of samples have the masks of the whole, wherever they begin and end.
template <class T, class Device, class... Arguments>
void ExpectPartsOfTheWhole(Arguments... arguments) {
  constexpr std::int64_t kElements = 20003, kAll = 3 * kElements;
  Device device(arguments...);
  const Array in = RandomArray(kAll, 1), more = RandomArray(kAll, 2);
  const auto dropped = [&](std::int64_t begin, std::int64_t end) {
    const auto part = [&](const Array& array) {
      return ToDevice<T>(device, Array(array.begin() + begin, array.begin() + end));
    };
    auto input = part(in), residual = part(more);
    device.Dropout({.elements = kElements,
                    .begin = begin,
                    .end = end,
                    .probability = 0.3,
                    .random = CounterRandom(5, RandomPurpose::kDropout),
                    .first_sample = 7,
                    .layer = 2,
                    .input = input.data(),
                    .residual = residual.data(),
                    .output = input.data()});
    return ToHost(input);
  };
  const Array whole = dropped(0, kAll);
  for (const auto& [begin, end] : {std::pair<std::int64_t, std::int64_t>{0, 1},
                                   {5, 5},
                                   {17, 19999},
                                   {16385, 20004},
                                   {kElements, kAll},
                                   {kElements - 3, 2 * kElements + 31},
                                   {kAll - 1, kAll}}) {
    EXPECT_EQ(dropped(begin, end), Array(whole.begin() + begin, whole.begin() + end))
        << begin << " to " << end;
  }
}

TEST(Dropout, OfPartsIsThatOfTheWhole) {
  ExpectPartsOfTheWhole<double, reference::ReferenceDevice<double>>();
  ExpectPartsOfTheWhole<float, TestedDevice<float>>(2);
  ExpectPartsOfTheWhole<BFloat16, TestedDevice<BFloat16>>(1);
}

TEST(Dropout, ProbabilityAtItsEnds) {
  ExpectAgreement(DropoutCase{1, 1000, 0});
  ExpectAgreement(DropoutCase{1, 1000, 1e-9});
  ExpectAgreement(DropoutCase{1, 1000, 0.999});
}

// A probability equal to a random number of the mask distinguishes "at least" from "above".
TEST(Dropout, KeepsAtLeastTheProbability) {
  const CounterRandom random(5, RandomPurpose::kDropout);
  const RandomPlace place{.step = 0xfffffff0, .sample = 1000000, .layer = 0xfffe, .element = 9};
  const double probability = random.Uniform(place);
  for (const double p : {probability, std::nextafter(probability, 1.0)}) {
    const DropoutCase a_case{1, 20, p};
    ExpectAgreement(a_case);
    TestedDevice<float> device(1);
    EXPECT_EQ(p > probability, a_case.Run(device, a_case.Inputs())[0].values[9] == 0);
  }
}

TEST(Dropout, KeepsTheMean) {
  const std::int64_t count = 200000;
  const Array ones(static_cast<std::size_t>(count), 1.0);
  TestedDevice<float> device(2);
  const Array out = DropoutCase{1, count, 0.1}.Run(device, {ones, ones})[0].values;
  EXPECT_NEAR(1.0, Dot(out, ones) / static_cast<double>(count), 0.005);
}

}  // namespace
}  // namespace adaptive_train::kernels::dropout_test
