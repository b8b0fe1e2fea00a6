// Faults that a person asks for, to rehearse what a run does about them: `run --inject`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace adaptive_train {

/// One fault. It happens once in a run, when the step begins.
struct Injection {
  enum class Kind : std::uint8_t { kKill, kFreeze, kCut, kSlow, kFailSave };

  Kind kind = Kind::kKill;
  int rank = -1;               // of kKill, kFreeze, kSlow; -1: `node` says which ranks
  std::string node;            // of kCut, kSlow: all ranks on it
  std::int64_t step = 0;       // optimizer step, from 1
  std::int64_t last_step = 0;  // of kSlow: slow up to its end
  double percent = 100;        // of kSlow: of the speed that is left

  bool operator==(const Injection&) const = default;
};

/// Reads faults with semicolons between them (untrusted), such as
///
///   kill rank 3 at step 20; freeze rank 1 at step 30; cut node n2 at step 35;
///   slow node n4 to 30 % from step 40 to 60; fail save at step 50
///
/// "step" may be left out, and "node" after slow; slow takes a rank as well. Fails in one line that
/// names the word and says what is allowed.
Result<std::vector<Injection>> ParseInjections(std::string_view text);

/// In that form.
std::string ToText(const Injection& injection);

/// A fault of a run, and whether it has happened.
struct RunInjection {
  Injection injection;
  bool done = false;
};

/// Their file in the run folder, by which ranks learn of them: docs/formats.md.
inline constexpr char kInjectionsFile[] = "injections.json";
std::string ToJson(const std::vector<RunInjection>& injections);
/// Reads untrusted text. Fails in one line.
Result<std::vector<RunInjection>> InjectionsFromJson(std::string_view text);

}  // namespace adaptive_train
