#include "db/sha256.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/evp.h>

#include <array>
#include <stdexcept>

namespace adaptive_train {

std::string Sha256Of(std::string_view text) {
  std::array<unsigned char, 32> hash{};
  if (::EVP_Q_digest(nullptr, "SHA256", nullptr, text.data(), text.size(), hash.data(), nullptr) !=
      1)
    throw std::runtime_error("libcrypto makes no SHA-256");
  return fmt::format("{:02x}", fmt::join(hash, ""));
}

}  // namespace adaptive_train
