// How the two ends of a control channel prove that they know the job's token without sending it.
//
// A proof is HMAC-SHA-256 (RFC 2104) with the token as key. Its text is the role of the sender,
// both sides' nonces for this connection, and the rest of the message. An eavesdropper can neither
// learn the token nor reuse a proof on another connection.
#pragma once

#include <string>

#include "core/control_message.h"

namespace adaptive_train {

/// 256 bits from the system's generator, as 64 hexadecimal digits. Throws std::runtime_error if the
/// system cannot provide them.
std::string NewNonce();

/// A rank's answer to `challenge`; covers all of `hello` but its proof.
std::string ProofOf(const std::string& token, const Challenge& challenge, const Hello& hello);
/// The launcher's answer to `hello`; covers all of `welcome` but its proof.
std::string ProofOf(const std::string& token, const Challenge& challenge, const Hello& hello,
                    const Welcome& welcome);

/// Compares in constant time.
bool SameProof(const std::string& a, const std::string& b);

}  // namespace adaptive_train
