// Proofs of the token: what they depend on, and what they do not reveal.
#include "core/token_proof.h"

#include <gtest/gtest.h>

namespace adaptive_train::token_proof_test {
namespace {

const Challenge kChallenge{"challenge"};
const Hello kHello{3, "n1", 42, "7.0", "nonce", ""};

TEST(TokenProof, IsHmacSha256OfAllParts) {
  // printf '4:rank9:challenge5:nonce1:32:n12:423:7.0' | openssl dgst -sha256 -hmac secret
  EXPECT_EQ(ProofOf("secret", kChallenge, kHello),
            "5742173d7fa347c24f796d0935316a318c5c7962a41cb87157be53a577646ce1");
}

TEST(TokenProof, DependsOnTokenNoncesAndWhatIsSaid) {
  const std::string proof = ProofOf("secret", kChallenge, kHello);
  EXPECT_EQ(ProofOf("secret", kChallenge, kHello), proof);
  EXPECT_NE(ProofOf("Secret", kChallenge, kHello), proof);
  EXPECT_NE(ProofOf("secret", Challenge{"other"}, kHello), proof);
  const auto changed = [](auto change) {
    Hello hello = kHello;
    change(hello);
    return ProofOf("secret", kChallenge, hello);
  };
  EXPECT_NE(changed([](Hello& h) { h.rank = 4; }), proof);
  EXPECT_NE(changed([](Hello& h) { h.host = "n2"; }), proof);
  EXPECT_NE(changed([](Hello& h) { h.nonce = "other"; }), proof);
  // Different parts whose concatenation is the same text.
  EXPECT_NE(changed([](Hello& h) { h.host = "n14", h.pid = 2; }), proof);
}

TEST(TokenProof, TheRanksAnswerIsNotTheLaunchers) {
  const std::string proof = ProofOf("secret", kChallenge, kHello, Welcome{"", 1, 2, 3});
  EXPECT_NE(proof, ProofOf("secret", kChallenge, kHello));
  EXPECT_NE(proof, ProofOf("secret", kChallenge, kHello, Welcome{"", 1, 2, 4}));
  EXPECT_NE(proof, ProofOf("secret", kChallenge, kHello, Welcome{"", 1, 2, 3, 5}));
}

TEST(TokenProof, NoncesAreLongAndNeverTheSame) {
  EXPECT_EQ(NewNonce().size(), 64u);
  EXPECT_NE(NewNonce(), NewNonce());
}

TEST(TokenProof, OnlyTheSameProofIsTheSame) {
  EXPECT_TRUE(SameProof("abc", "abc"));
  EXPECT_FALSE(SameProof("abc", "abd"));
  EXPECT_FALSE(SameProof("abc", "ab"));
  EXPECT_FALSE(SameProof("", "a"));
}

}  // namespace
}  // namespace adaptive_train::token_proof_test
