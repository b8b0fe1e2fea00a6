// Reads and writes times the way sacct does.
#pragma once

#include <string>
#include <string_view>

#include "core/result.h"

namespace adaptive_train {

/// The time (UTC, seconds since 1970) that `text` names in local time, relative to `now`:
///   YYYY-MM-DD[THH:MM[:SS]]   MM/DD[/YY][-HH:MM[:SS]]   MM.DD[.YY][-HH:MM[:SS]]
///   MMDD[YY][-HH:MM[:SS]]     HH:MM[:SS][AM|PM]
///   today   midnight   noon   fika (15:00)   teatime (16:00)
///   now[{+|-}COUNT[seconds|minutes|hours|days|weeks]]
/// A time without a date is today's. A date without a year is the latest one that is not after
/// today. A day counts as 24 hours. Error: ExitCode::kUsage.
Result<double> ParseJobTime(std::string_view text, double now);

/// "2026-01-31T09:05:00" in local time.
std::string ShownTime(double time);

/// "[D-]HH:MM:SS", whole seconds rounded down; negative spans are shown as zero.
std::string ShownSpan(double seconds);

/// Today's midnight in local time.
double Midnight(double now);

}  // namespace adaptive_train
