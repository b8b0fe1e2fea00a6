// How the two ends of a control channel show each other that they know the job's token, which never
// goes over the wire.
//
// A proof is HMAC-SHA-256 (RFC 2104) with the token as key, over who proves, what was drawn by both
// sides for this connection alone, and what the message says besides. Someone who listens can
// therefore neither learn the token nor use what was said on another connection.
#pragma once

#include <string>

#include "core/control_message.h"

namespace adaptive_train {

/// 256 bits from the system's generator, as 64 hexadecimal digits. Throws std::runtime_error if the
/// system has none to give.
std::string NewNonce();

/// A rank's answer to `challenge`: for all that `hello` says but its proof.
std::string ProofOf(const std::string& token, const Challenge& challenge, const Hello& hello);
/// The launcher's answer to `hello`, for all that `welcome` says but its proof.
std::string ProofOf(const std::string& token, const Challenge& challenge, const Hello& hello,
                    const Welcome& welcome);

/// Compares in a time that does not tell where the difference is.
bool SameProof(const std::string& a, const std::string& b);

}  // namespace adaptive_train
