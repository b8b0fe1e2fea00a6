// Credentials of munge (munge(3)): who wrote a text, for one reader.
#pragma once

#include <sys/types.h>

#include <string>

#include "core/result.h"

namespace adaptive_train {

struct MungeText {
  uid_t writer = 0;
  std::string text;
};

// By way of the munged at `socket`; the host's own where that is empty. Any thread. Both block as
// libmunge does: some seconds where munged does not answer. Errors: ExitCode::kStore, one line.

/// A credential of `text`, encrypted, which only `reader` can decode.
Result<std::string> MungeEncode(const std::string& text, uid_t reader, const std::string& socket);

/// Refuses what munged does (an expired, rewound or replayed credential, that of another realm),
/// and a credential that was not encrypted for this process's user alone.
Result<MungeText> MungeDecode(const std::string& credential, const std::string& socket);

}  // namespace adaptive_train
