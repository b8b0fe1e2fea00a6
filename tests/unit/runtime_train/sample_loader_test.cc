// Which samples steps take, also where a run goes on with batches of another size; and what tells
// one training text from another.
#include "runtime/train/sample_loader.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/train/data_fingerprint.h"

namespace adaptive_train::sample_loader_test {
namespace {

constexpr ModelDims kDims{.layers = 1, .heads = 1, .hidden = 4, .sequence = 8, .vocab = 256};

class SampleLoaderTest : public testing::Test {
 protected:
  SampleLoaderTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "samples.XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("cannot make a folder");
    folder_ = pattern;
  }
  ~SampleLoaderTest() override { std::filesystem::remove_all(folder_); }

  Datasets Open(const std::string& name, const std::string& text, std::uint64_t seed = 1) const {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path, std::ios::binary) << text;
    return OpenDatasets({path, "auto", "bytes", kDims.sequence, kDims.vocab, seed}).value();
  }
  /// No two windows are alike.
  static std::string Text(int size) {
    std::string text;
    for (int i = 0; i < size; ++i) text += static_cast<char>((i * i / 7 + i / 256) % 251);
    return text;
  }
  static std::string Fingerprint(const Datasets& data) {
    return FingerprintOf(data.train, kDims.sequence).value();
  }

  std::string folder_;
};

std::vector<std::int32_t> Take(SampleLoader& loader, std::int64_t step, std::int64_t count) {
  const Samples samples = loader.Training(step, 0, count);
  return {samples.tokens.begin(), samples.tokens.end()};
}

TEST_F(SampleLoaderTest, ARunWithAnotherBatchGoesOnWithTheNextSample) {
  const Datasets data = Open("text", Text(4000));
  SampleLoader one(kDims, data, 1, 1);
  std::vector<std::int32_t> in_order;
  for (std::int64_t step = 1; step <= 36; ++step)
    for (const std::int32_t token : Take(one, step, 1)) in_order.push_back(token);
  // 3 steps of 4, 2 of 6, 4 of 3.
  std::vector<std::int32_t> taken;
  std::int64_t step = 0, samples = 0;
  struct Phase {
    std::int64_t batch, steps;
  };
  for (const auto& [batch, steps] : {Phase{4, 3}, Phase{6, 2}, Phase{3, 4}}) {
    SampleLoader loader(kDims, data, 1, batch);
    loader.GoOnAfter(step, samples);
    for (const std::int64_t last = step + steps; step < last;)
      for (const std::int32_t token : Take(loader, ++step, batch)) taken.push_back(token);
    samples = loader.SamplesBefore(step + 1);
  }
  EXPECT_EQ(samples, 36);
  EXPECT_EQ(taken, in_order);
}

TEST_F(SampleLoaderTest, ATextIsKnownByItsTokens) {
  const std::string text = Text(4000);
  const std::string known = Fingerprint(Open("text", text));
  EXPECT_EQ(Fingerprint(Open("copy", text, 5)), known);
  EXPECT_NE(Fingerprint(Open("grown", text + text)), known);
  EXPECT_NE(Fingerprint(Open("a bit longer", text + "x")), known);
  std::string edited = text;
  edited[0] ^= 1;
  EXPECT_NE(Fingerprint(Open("edited", edited)), known);
  EXPECT_NO_THROW(Fingerprint(Open("one sample", text.substr(0, 200))));
}

}  // namespace
}  // namespace adaptive_train::sample_loader_test
