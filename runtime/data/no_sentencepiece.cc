// Replaces sentencepiece_tokenizer.cc in a build without the library.
#include "runtime/data/tokenizer.h"

namespace adaptive_train {
namespace {

tl::unexpected<Error> Missing() {
  return Fail(
      "this build has no sentencepiece: --tokenizer bytes works, or build with "
      "-DADAPTIVE_TRAIN_SENTENCEPIECE=ON");
}

}  // namespace

bool HasSentencePiece() { return false; }

Result<std::unique_ptr<Tokenizer>> MakeSentencePieceTokenizer(const std::string&,
                                                              const std::string&) {
  return Missing();
}

Result<std::string> TrainSentencePiece(const LineSource&, const SentencePieceTraining&) {
  return Missing();
}

}  // namespace adaptive_train
