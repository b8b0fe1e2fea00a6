// Compares an operation on the device under test, for every scalar and instruction set, with the
// float64 reference.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/reference/reference_device.h"
#include "tests/unit/kernels/arrays.h"
#include "tests/unit/kernels/tested_device.h"
#include "tests/unit/kernels/tolerances.h"

namespace adaptive_train::kernels {

/// The output of an operation, and whether it is stored as T or as Accumulator<T>.
struct Output {
  Op op;
  Array values;
  bool is_sum = false;
};
using Outputs = std::vector<Output>;

inline void ExpectWithin(const Bound& bound, const Array& expected, const Array& actual,
                         const std::string& what) {
  ASSERT_EQ(expected.size(), actual.size()) << what;
  double largest = 0;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_TRUE(bound.Allows(expected[i], actual[i], largest))
        << what << " at " << i << ": " << actual[i] << ", expected " << expected[i];
  }
}

template <class T, class Case>
void ExpectAgreementIn(const std::string& scalar, const Case& a_case) {
  const Arrays inputs = RoundedTo<T>(a_case.Inputs());
  reference::ReferenceDevice<double> oracle;
  const Outputs expected = a_case.Run(oracle, inputs);
  OnEveryInstructionSet([&](const std::string& name) {
    TestedDevice<T> one(1);
    const Outputs actual = a_case.Run(one, inputs);
    ASSERT_EQ(expected.size(), actual.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ExpectWithin(Tolerance<T>(expected[i].op, expected[i].is_sum), expected[i].values,
                   actual[i].values, scalar + ", " + name + ", output " + std::to_string(i));
    }
    for (const int threads : kOtherThreads) {
      TestedDevice<T> several(threads);
      const Outputs again = a_case.Run(several, inputs);
      for (std::size_t i = 0; i < actual.size(); ++i) {
        EXPECT_EQ(actual[i].values, again[i].values)
            << scalar << ", " << name << ", output " << i << " with " << threads << " threads";
      }
    }
  });
}

/// A case has Inputs(), arrays of double, and Run(device, inputs), which returns Outputs for a
/// device of any scalar.
template <class Case>
void ExpectAgreement(const Case& a_case) {
  ExpectAgreementIn<float>("float", a_case);
  ExpectAgreementIn<BFloat16>("bfloat16", a_case);
  ExpectAgreementIn<Float16>("float16", a_case);
}

/// An input of a case, and the output that is the objective's gradient with respect to it.
struct GradientPair {
  std::size_t input;
  std::size_t gradient;
};

/// Compares the reference's gradients with central differences of objective(inputs, outputs).
/// Gradients that are added to must start from zero.
template <class Case, class Objective>
void ExpectGradients(const Case& a_case, Arrays inputs, const std::vector<GradientPair>& pairs,
                     const Objective& objective) {
  constexpr double kStep = 1e-5, kTolerance = 1e-8;
  reference::ReferenceDevice<double> device;
  const Outputs outputs = a_case.Run(device, inputs);
  for (const GradientPair& pair : pairs) {
    const Array& gradients = outputs[pair.gradient].values;
    ASSERT_EQ(inputs[pair.input].size(), gradients.size());
    ASSERT_FALSE(gradients.empty());
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      double& value = inputs[pair.input][i];
      const double center = value;
      value = center + kStep;
      const double above = objective(inputs, a_case.Run(device, inputs));
      value = center - kStep;
      const double below = objective(inputs, a_case.Run(device, inputs));
      value = center;
      EXPECT_NEAR((above - below) / (2 * kStep), gradients[i],
                  kTolerance * std::max(1.0, std::abs(gradients[i])))
          << "input " << pair.input << " at " << i;
    }
  }
}

}  // namespace adaptive_train::kernels
