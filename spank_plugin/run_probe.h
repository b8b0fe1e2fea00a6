// Runs the probe as a child that cannot block, harm or outlive its caller, and keeps its last
// complete document.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace adaptive_train::plugin {

struct ProbeIdentity {
  uid_t user;
  gid_t group;
};

struct ProbeRequest {
  std::string path;                      // absolute
  std::chrono::milliseconds deadline;    // from now to the probe's end
  std::size_t max_output_bytes;          // more than this discards all
  std::vector<std::string> environment;  // NAME=VALUE; the probe's whole environment
  std::optional<ProbeIdentity> run_as;   // needs root; none: as the caller
};

struct ProbeOutcome {
  std::string document;  // the last complete line that looks like a JSON object, without its
                         // newline; empty: none
  std::string problem;   // empty, or one line on what went wrong, also beside a document
};

/// Blocks for the deadline and at most half a second more. When it returns, the probe and
/// everything it started are gone, including processes in other sessions. Only a process that the
/// kernel cannot end may remain. The caller's other children and its signal dispositions are not
/// touched. One call at a time.
ProbeOutcome RunProbe(const ProbeRequest& request);

/// The last line of `output` that ends with a line end, begins with '{', ends with '}' and has no
/// NUL; or empty.
std::string_view LastDocument(std::string_view output);

}  // namespace adaptive_train::plugin
