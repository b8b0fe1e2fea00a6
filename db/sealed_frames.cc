#include "db/sealed_frames.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

#include <array>
#include <stdexcept>
#include <utility>

namespace adaptive_train {
namespace {

constexpr std::size_t kKeyBytes = 32, kNonceBytes = 12;
using Key = std::array<unsigned char, kKeyBytes>;
using Nonce = std::array<unsigned char, kNonceBytes>;

void Require(bool done, const char* what) {
  if (!done) throw std::runtime_error(std::string("libcrypto has no ") + what);
}

/// From the offer's key; a key for each `purpose`.
Key DerivedKey(const SessionOffer& offer, std::string purpose) {
  std::string secret = offer.key, salt = offer.client_nonce + offer.service_nonce;
  char hash[] = "SHA256";
  const auto octets = [](const char* name, std::string& text) {
    return ::OSSL_PARAM_construct_octet_string(name, text.data(), text.size());
  };
  const OSSL_PARAM parameters[] = {
      ::OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, hash, 0),
      octets(OSSL_KDF_PARAM_KEY, secret), octets(OSSL_KDF_PARAM_SALT, salt),
      octets(OSSL_KDF_PARAM_INFO, purpose), ::OSSL_PARAM_construct_end()};
  const std::unique_ptr<EVP_KDF, decltype(&::EVP_KDF_free)> kdf(
      ::EVP_KDF_fetch(nullptr, "HKDF", nullptr), &::EVP_KDF_free);
  Require(kdf != nullptr, "HKDF");
  const std::unique_ptr<EVP_KDF_CTX, decltype(&::EVP_KDF_CTX_free)> context(
      ::EVP_KDF_CTX_new(kdf.get()), &::EVP_KDF_CTX_free);
  Key key{};
  Require(context && ::EVP_KDF_derive(context.get(), key.data(), key.size(), parameters) == 1,
          "HKDF");
  return key;
}

Nonce NonceOf(std::uint64_t frame) {
  Nonce nonce{};
  for (std::size_t i = 0; i < sizeof frame; ++i)
    nonce[kNonceBytes - 1 - i] = static_cast<unsigned char>(frame >> (8 * i));
  return nonce;
}

EVP_CIPHER_CTX* NewCipher(const Key& key, bool seals) {
  EVP_CIPHER_CTX* cipher = ::EVP_CIPHER_CTX_new();
  Require(cipher != nullptr && ::EVP_CipherInit_ex2(cipher, ::EVP_aes_256_gcm(), key.data(),
                                                    nullptr, seals ? 1 : 0, nullptr) == 1,
          "AES-256-GCM");
  return cipher;
}

unsigned char* Bytes(std::string& text) { return reinterpret_cast<unsigned char*>(text.data()); }
const unsigned char* Bytes(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

/// Sets the nonce and works on the whole text. Texts are shorter than 2^31 bytes.
bool Transform(EVP_CIPHER_CTX* cipher, std::uint64_t frame, std::string_view from,
               std::string& to) {
  int size = 0;
  const Nonce nonce = NonceOf(frame);
  return ::EVP_CipherInit_ex2(cipher, nullptr, nullptr, nonce.data(), -1, nullptr) == 1 &&
         ::EVP_CipherUpdate(cipher, Bytes(to), &size, Bytes(from), static_cast<int>(from.size())) ==
             1;
}

}  // namespace

void SealedFrames::Free::operator()(evp_cipher_ctx_st* context) const {
  ::EVP_CIPHER_CTX_free(context);
}

SealedFrames::SealedFrames(const SessionOffer& offer, End end) {
  const Key of_client = DerivedKey(offer, "adaptive-traind: client to service");
  const Key of_service = DerivedKey(offer, "adaptive-traind: service to client");
  const bool client = end == End::kClient;
  out_.cipher.reset(NewCipher(client ? of_client : of_service, true));
  in_.cipher.reset(NewCipher(client ? of_service : of_client, false));
}

SealedFrames::SealedFrames(SealedFrames&&) noexcept = default;
SealedFrames& SealedFrames::operator=(SealedFrames&&) noexcept = default;
SealedFrames::~SealedFrames() = default;

std::string SealedFrames::Seal(std::string_view text) {
  std::string sealed(text.size() + kTagBytes, '\0');
  int rest = 0;
  EVP_CIPHER_CTX* const cipher = out_.cipher.get();
  const bool done =
      Transform(cipher, out_.frames++, text, sealed) &&
      ::EVP_CipherFinal_ex(cipher, Bytes(sealed) + text.size(), &rest) == 1 &&
      ::EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_GET_TAG, static_cast<int>(kTagBytes),
                            sealed.data() + text.size()) == 1;
  Require(done, "AES-256-GCM");
  return sealed;
}

Result<std::string> SealedFrames::Open(std::string_view sealed) {
  const auto foreign = [this] {
    in_.cipher.reset();
    return Fail("a frame is not of this session, or not the next one of it", ExitCode::kStore);
  };
  EVP_CIPHER_CTX* const cipher = in_.cipher.get();
  if (cipher == nullptr || sealed.size() < kTagBytes) return foreign();
  std::string tag(sealed.substr(sealed.size() - kTagBytes));
  sealed.remove_suffix(kTagBytes);
  std::string text(sealed.size(), '\0');
  int rest = 0;
  const bool done = Transform(cipher, in_.frames++, sealed, text) &&
                    ::EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_SET_TAG,
                                          static_cast<int>(kTagBytes), tag.data()) == 1 &&
                    ::EVP_CipherFinal_ex(cipher, Bytes(text) + text.size(), &rest) == 1;
  if (!done) return foreign();
  return text;
}

}  // namespace adaptive_train
