// How a client and adaptive-traind on another host come to know each other, and to have a key.
//
//   service -> client   a challenge: the version of this, a nonce
//   client -> service   the client's credential of its offer, which the service's user can decode
//   service -> client   the service's credential of the offer's hash, for the client's user
//
// munged vouches for both uids. Each side has chosen a nonce, so that no credential serves twice.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "core/result.h"

namespace adaptive_train {

/// How long a session lasts; a client makes a new one before.
inline constexpr std::chrono::minutes kSessionAge{60}, kSessionRenewal{50};

/// "adaptive-traind session 1" and the nonce, a line each.
std::string ChallengeOf(const std::string& nonce);
/// The nonce of an untrusted challenge. Fails where this program does not speak its version.
Result<std::string> ReadChallenge(std::string_view text);

/// The nonces and the key are 64 hexadecimal digits each (NewNonce of core/token_proof.h).
struct SessionOffer {
  std::string service;  // HOST:PORT as the client knows it
  std::string service_nonce, client_nonce;
  std::string key;
};

std::string ToText(const SessionOffer& offer);
/// Reads untrusted text.
Result<SessionOffer> ReadSessionOffer(std::string_view text);

/// What the service's credential says: SHA-256 of the offer as text, in hexadecimal digits.
std::string AcceptanceOf(const SessionOffer& offer);

}  // namespace adaptive_train
