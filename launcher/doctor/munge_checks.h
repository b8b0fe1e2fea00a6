// What doctor looks at of munge, by which Slurm knows who asks.
#pragma once

#include <optional>
#include <string>

#include "launcher/doctor/finding.h"

namespace adaptive_train {

/// Whether munged answers here. Runs munge; blocks for 5 s at most.
Finding CheckMungeAnswers();

/// What the distribution's package says.
struct MungePackage {
  std::string version;                   // "0.5.15-2+deb12u1"; empty: not known
  std::optional<std::string> changelog;  // none: not to be read
};

/// The installed package. Runs dpkg-query or rpm; blocks for 10 s at most.
MungePackage FindMungePackage();

/// Against CVE-2026-25506, a buffer overflow by which any local user can take munge's key. It is
/// mended in 0.5.18, and in older packages whose changelog names it.
Finding CheckMungeVersion(const MungePackage& package);

}  // namespace adaptive_train
