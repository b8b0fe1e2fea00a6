// Frames that only the two ends of a session can make and read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/result.h"
#include "db/session_offer.h"

extern "C" {
struct evp_cipher_ctx_st;
}

namespace adaptive_train {

/// AES-256-GCM (NIST SP 800-38D) with a key for each direction, which both ends derive from the
/// offer by HKDF (RFC 5869). The number of a direction's frame is its nonce: a frame that is
/// changed, left out, repeated or of another session does not open. One thread at a time.
class SealedFrames {
 public:
  enum class End { kClient, kService };
  /// A sealed text is so many bytes longer.
  static constexpr std::size_t kTagBytes = 16;

  /// Throws std::runtime_error if libcrypto has no such cipher.
  SealedFrames(const SessionOffer& offer, End end);
  SealedFrames(SealedFrames&&) noexcept;
  SealedFrames& operator=(SealedFrames&&) noexcept;
  ~SealedFrames();

  std::string Seal(std::string_view text);
  /// After an error nothing opens any more.
  Result<std::string> Open(std::string_view sealed);

 private:
  struct Free {
    void operator()(evp_cipher_ctx_st* context) const;
  };
  struct Direction {
    std::unique_ptr<evp_cipher_ctx_st, Free> cipher;
    std::uint64_t frames = 0;
  };

  Direction out_, in_;
};

}  // namespace adaptive_train
