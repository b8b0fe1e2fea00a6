// Runs the probe as a child that cannot hold, harm or outlive its caller, and keeps the last
// complete thing it said.
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
  std::size_t max_output_bytes;          // more than this is refused altogether
  std::vector<std::string> environment;  // NAME=VALUE; all that the probe gets
  std::optional<ProbeIdentity> run_as;   // needs root; none: as the caller
};

struct ProbeOutcome {
  std::string document;  // the last complete line that looks like a JSON object, without its
                         // newline; empty: none
  std::string
      problem;  // empty, or in one line what went wrong; a document may be there all the same
};

/// Blocks for the deadline and at most half a second more. When it returns, the probe and
/// everything it started are gone, also what moved to another session; only a process that the
/// kernel cannot end may stay. The caller's other children are left alone. Every process signal
/// disposition of the caller is untouched. One call at a time.
ProbeOutcome RunProbe(const ProbeRequest& request);

/// The last line of `output` that ends with a newline, begins with '{', ends with '}' and holds no
/// NUL; or empty.
std::string_view LastDocument(std::string_view output);

}  // namespace adaptive_train::plugin
