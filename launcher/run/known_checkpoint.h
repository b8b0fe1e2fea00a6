// The newest checkpoint that a run knows of, and what that means for a run that ends without saving.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/control_message.h"
#include "launcher/nodes/allocation.h"

namespace adaptive_train {

/// A value. Words are parts of a line.
class KnownCheckpoint {
 public:
  /// The ranks have taken their state up.
  void Add(const Resumed& resumed);
  void Add(const Saved& saved);

  bool Exists() const { return step_.has_value(); }
  /// 0: there is none.
  std::int64_t Step() const { return step_.value_or(0); }
  /// What is lost of a run that has done `last_step` steps and ends without saving.
  std::string WhatIsLost(std::int64_t last_step) const;
  /// The same of one that failed, and how it goes on. Exists().
  std::string HowToGoOn(std::int64_t last_step, const std::string& run_dir,
                        const Allocation& where) const;

 private:
  std::int64_t StepsAfter(std::int64_t last_step) const;

  std::optional<std::int64_t> step_;
  std::string path_;  // empty: another run has written it
};

}  // namespace adaptive_train
