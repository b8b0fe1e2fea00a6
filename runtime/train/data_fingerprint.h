// A short text that tells one training text from another.
#pragma once

#include <cstdint>
#include <string>

#include "core/result.h"
#include "runtime/data/token_dataset.h"

namespace adaptive_train {

/// Tokens, samples and a hash of some windows of `sequence` tokens, spread over the whole text: the
/// same for the same tokens under another path or format, another one where the text has grown, and
/// nearly always where it was edited. Reads some hundred KB. Blocking.
Result<std::string> FingerprintOf(const TokenDataset& data, std::int64_t sequence);

}  // namespace adaptive_train
