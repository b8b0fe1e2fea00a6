// A tokenizer whose tokens are bytes.
#include <fmt/format.h>

#include "runtime/data/tokenizer.h"

namespace adaptive_train {
namespace {

constexpr std::int32_t kEndOfDocument = 256;

class ByteTokenizer : public Tokenizer {
 public:
  const char* name() const override { return "bytes"; }
  std::int64_t vocab() const override { return kEndOfDocument + 1; }
  std::int32_t end_of_document() const override { return kEndOfDocument; }
  std::int32_t unknown() const override { return -1; }
  Result<void> Encode(std::string_view text, std::vector<std::int32_t>& tokens) const override {
    for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
    return {};
  }
  std::string Decode(std::span<const std::int32_t> tokens) const override {
    std::string text;
    for (const std::int32_t token : tokens)
      text += token >= 0 && token < kEndOfDocument ? std::string(1, static_cast<char>(token))
                                                   : fmt::format("<{}>", token);
    return text;
  }
};

}  // namespace

std::unique_ptr<Tokenizer> MakeByteTokenizer() { return std::make_unique<ByteTokenizer>(); }

}  // namespace adaptive_train
