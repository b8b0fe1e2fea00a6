#include "core/token_proof.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <array>
#include <initializer_list>
#include <stdexcept>
#include <string_view>

namespace adaptive_train {
namespace {

std::string Hex(const unsigned char* bytes, std::size_t n) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (std::size_t i = 0; i < n; ++i) {
    text += kDigits[bytes[i] >> 4];
    text += kDigits[bytes[i] & 15];
  }
  return text;
}

/// Includes each part's length, so that different lists of parts never give the same text.
std::string KeyedHash(const std::string& token, std::initializer_list<std::string> parts) {
  std::string text;
  for (const std::string& part : parts) text += std::to_string(part.size()) + ":" + part;
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  const unsigned char* done = ::HMAC(::EVP_sha256(), token.data(), static_cast<int>(token.size()),
                                     reinterpret_cast<const unsigned char*>(text.data()),
                                     text.size(), digest.data(), &size);
  if (done == nullptr) throw std::runtime_error("libcrypto makes no HMAC-SHA-256");
  return Hex(digest.data(), size);
}

}  // namespace

std::string NewNonce() {
  std::array<unsigned char, 32> bytes{};
  if (::RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1)
    throw std::runtime_error("libcrypto has no random numbers");
  return Hex(bytes.data(), bytes.size());
}

std::string ProofOf(const std::string& token, const Challenge& challenge, const Hello& hello) {
  return KeyedHash(token, {"rank", challenge.nonce, hello.nonce, std::to_string(hello.rank),
                           hello.host, std::to_string(hello.pid), hello.step_id});
}

std::string ProofOf(const std::string& token, const Challenge& challenge, const Hello& hello,
                    const Welcome& welcome) {
  return KeyedHash(token, {"launcher", challenge.nonce, hello.nonce, std::to_string(hello.rank),
                           std::to_string(welcome.pmix_init_ms), std::to_string(welcome.go_ms),
                           std::to_string(welcome.fence_ms), std::to_string(welcome.silence_ms)});
}

bool SameProof(const std::string& a, const std::string& b) {
  return a.size() == b.size() && ::CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace adaptive_train
