// Writes tokens in the width of their type, and sequences within Megatron's limits.
#include "runtime/data/token_writer.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "runtime/data/megatron_index.h"

namespace adaptive_train {
namespace {

/// A longer document takes several sequences: Megatron counts a sequence's tokens in 31 bits.
constexpr std::int64_t kMostSequenceTokens = std::int64_t{1} << 30;

}  // namespace

TokenWriter::TokenWriter(StagedFile bin, TokenType type) : bin_(std::move(bin)), type_(type) {
  assert(type == TokenType::kUint16 || type == TokenType::kInt32);
}

Result<void> TokenWriter::Append(std::span<const std::int32_t> tokens) {
  tokens_ += static_cast<std::int64_t>(tokens.size());
  while (!tokens.empty()) {
    const auto part = tokens.first(static_cast<std::size_t>(
        std::min(static_cast<std::int64_t>(tokens.size()), kMostSequenceTokens - in_sequence_)));
    if (Result<void> written = Write(part); !written) return written;
    in_sequence_ += static_cast<std::int64_t>(part.size());
    if (in_sequence_ == kMostSequenceTokens) EndSequence();
    tokens = tokens.subspan(part.size());
  }
  return {};
}

void TokenWriter::EndDocument() {
  EndSequence();
  marks_.push_back(static_cast<std::int64_t>(sizes_.size()));
}

std::string TokenWriter::Index() const { return FormatMegatronIndex(type_, sizes_, marks_); }

Result<void> TokenWriter::Write(std::span<const std::int32_t> tokens) {
  if (type_ == TokenType::kInt32)
    return bin_.Append({reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes()});
  narrow_.assign(tokens.begin(), tokens.end());
  return bin_.Append({reinterpret_cast<const char*>(narrow_.data()), 2 * narrow_.size()});
}

void TokenWriter::EndSequence() {
  if (in_sequence_ > 0) sizes_.push_back(static_cast<std::int32_t>(in_sequence_));
  in_sequence_ = 0;
}

}  // namespace adaptive_train
