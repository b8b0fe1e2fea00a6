// Reads and writes times the way sacct does.
#include "launcher/report/job_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <cmath>
#include <ctime>
#include <optional>

namespace adaptive_train {
namespace {

constexpr std::int64_t kDaySeconds = 86400;

struct Date {
  int year = 0, month = 0, day = 0;
};

struct Clock {
  int hour = 0, minute = 0, second = 0;
};

/// Reads one text from left to right; a failed read does not move the position.
class Scanner {
 public:
  explicit Scanner(std::string_view rest) : rest_(rest) {}

  bool AtEnd() const { return rest_.empty(); }
  bool Char(char c) {
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool Word(std::string_view word) {
    if (rest_.substr(0, word.size()) != word) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  /// A number of `least` to `most` digits; none if more digits follow.
  std::optional<int> Digits(std::size_t least, std::size_t most) {
    const std::size_t count = std::min(rest_.find_first_not_of("0123456789"), rest_.size());
    if (count < least || count > most) return std::nullopt;
    return Take(count);
  }
  /// Exactly two digits, whatever follows.
  std::optional<int> TwoDigits() {
    const auto digit = [&](std::size_t i) {
      return i < rest_.size() && rest_[i] >= '0' && rest_[i] <= '9';
    };
    if (!digit(0) || !digit(1)) return std::nullopt;
    return Take(2);
  }
  std::string_view Rest() const { return rest_; }

 private:
  int Take(std::size_t count) {
    int value = 0;
    for (const char c : rest_.substr(0, count)) value = value * 10 + (c - '0');
    rest_.remove_prefix(count);
    return value;
  }

  std::string_view rest_;
};

std::tm LocalTime(double moment) {
  const auto seconds = static_cast<std::time_t>(std::floor(moment));
  std::tm local{};
  localtime_r(&seconds, &local);
  return local;
}

Date Today(double now) {
  const std::tm local = LocalTime(now);
  return {local.tm_year + 1900, local.tm_mon + 1, local.tm_mday};
}

/// None if there is no such day or time of day.
std::optional<double> Moment(const Date& date, const Clock& clock) {
  const std::chrono::year_month_day day{std::chrono::year(date.year),
                                        std::chrono::month(static_cast<unsigned>(date.month)),
                                        std::chrono::day(static_cast<unsigned>(date.day))};
  if (!day.ok() || clock.hour > 23 || clock.minute > 59 || clock.second > 59) return std::nullopt;
  std::tm local{};
  local.tm_year = date.year - 1900;
  local.tm_mon = date.month - 1;
  local.tm_mday = date.day;
  local.tm_hour = clock.hour;
  local.tm_min = clock.minute;
  local.tm_sec = clock.second;
  local.tm_isdst = -1;
  return static_cast<double>(std::mktime(&local));
}

std::optional<Clock> ReadClock(Scanner& scanner) {
  const auto hour = scanner.Digits(1, 2);
  if (!hour || !scanner.Char(':')) return std::nullopt;
  const auto minute = scanner.Digits(2, 2);
  if (!minute) return std::nullopt;
  Clock clock{*hour, *minute, 0};
  if (!scanner.Char(':')) return clock;
  const auto second = scanner.Digits(2, 2);
  if (!second) return std::nullopt;
  clock.second = *second;
  return clock;
}

/// Nothing, or `separator` and a time of day, up to the end of the text.
std::optional<Clock> ReadClockAfterDate(Scanner& scanner, char separator) {
  if (scanner.AtEnd()) return Clock{};
  if (!scanner.Char(separator)) return std::nullopt;
  const auto clock = ReadClock(scanner);
  return scanner.AtEnd() ? clock : std::nullopt;
}

struct Reading {
  Date date;
  Clock clock;
};

std::optional<Reading> ReadTimeOfDay(Scanner scanner, double now) {
  auto clock = ReadClock(scanner);
  if (!clock) return std::nullopt;
  const bool pm = scanner.Word("pm");
  if (pm || scanner.Word("am")) {
    if (clock->hour < 1 || clock->hour > 12)
      clock->hour = 24;  // invalid on purpose
    else
      clock->hour = clock->hour % 12 + (pm ? 12 : 0);
  }
  if (!scanner.AtEnd()) return std::nullopt;
  return Reading{Today(now), *clock};
}

std::optional<Reading> ReadIsoDate(Scanner scanner) {
  const auto year = scanner.Digits(4, 4);
  if (!year || !scanner.Char('-')) return std::nullopt;
  const auto month = scanner.Digits(1, 2);
  if (!month || !scanner.Char('-')) return std::nullopt;
  const auto day = scanner.Digits(1, 2);
  if (!day) return std::nullopt;
  const auto clock = ReadClockAfterDate(scanner, 't');
  if (!clock) return std::nullopt;
  return Reading{{*year, *month, *day}, *clock};
}

int YearOf(std::optional<int> two_digits, int month, int day, double now) {
  if (two_digits) return 2000 + *two_digits;
  const Date today = Today(now);
  const bool later = month > today.month || (month == today.month && day > today.day);
  return later ? today.year - 1 : today.year;
}

/// MM/DD[/YY] or MM.DD[.YY].
std::optional<Reading> ReadMonthFirst(Scanner scanner, char separator, double now) {
  const auto month = scanner.Digits(1, 2);
  if (!month || !scanner.Char(separator)) return std::nullopt;
  const auto day = scanner.Digits(1, 2);
  if (!day) return std::nullopt;
  std::optional<int> year;
  if (scanner.Char(separator) && !(year = scanner.Digits(2, 2))) return std::nullopt;
  const auto clock = ReadClockAfterDate(scanner, '-');
  if (!clock) return std::nullopt;
  return Reading{{YearOf(year, *month, *day, now), *month, *day}, *clock};
}

/// MMDD[YY].
std::optional<Reading> ReadCompactDate(Scanner scanner, double now) {
  const auto month = scanner.TwoDigits();
  const auto day = month ? scanner.TwoDigits() : std::nullopt;
  if (!day) return std::nullopt;
  const auto year = scanner.TwoDigits();
  const auto clock = ReadClockAfterDate(scanner, '-');
  if (!clock) return std::nullopt;
  return Reading{{YearOf(year, *month, *day, now), *month, *day}, *clock};
}

struct NamedClock {
  std::string_view name;
  int hour;
};
constexpr std::array kNamedClocks = {NamedClock{"today", 0}, NamedClock{"midnight", 0},
                                     NamedClock{"noon", 12}, NamedClock{"fika", 15},
                                     NamedClock{"teatime", 16}};

std::optional<Reading> ReadNamedClock(std::string_view text, double now) {
  for (const NamedClock& named : kNamedClocks) {
    if (text == named.name) return Reading{Today(now), Clock{named.hour, 0, 0}};
  }
  return std::nullopt;
}

struct Unit {
  std::string_view name;
  std::int64_t seconds;
};
constexpr std::array kUnits = {Unit{"seconds", 1}, Unit{"minutes", 60}, Unit{"hours", 3600},
                               Unit{"days", kDaySeconds}, Unit{"weeks", 7 * kDaySeconds}};

/// now[{+|-}COUNT[UNIT]]; as in Slurm, a unit may be cut to three letters.
std::optional<double> ReadFromNow(Scanner scanner, double now) {
  if (!scanner.Word("now")) return std::nullopt;
  if (scanner.AtEnd()) return now;
  const bool minus = scanner.Char('-');
  if (!minus && !scanner.Char('+')) return std::nullopt;
  const auto count = scanner.Digits(1, 9);
  if (!count) return std::nullopt;
  const std::string_view name = scanner.Rest();
  const auto unit = std::find_if(kUnits.begin(), kUnits.end(), [&](const Unit& candidate) {
    return name.empty() || (name.size() >= 3 && candidate.name.substr(0, name.size()) == name);
  });
  if (unit == kUnits.end()) return std::nullopt;
  const double span = static_cast<double>(*count) * static_cast<double>(unit->seconds);
  return minus ? now - span : now + span;
}

}  // namespace

Result<double> ParseJobTime(std::string_view text, double now) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  if (const auto moment = ReadFromNow(Scanner(lower), now)) return *moment;
  auto reading = ReadNamedClock(lower, now);
  if (!reading) reading = ReadTimeOfDay(Scanner(lower), now);
  if (!reading) reading = ReadIsoDate(Scanner(lower));
  if (!reading) reading = ReadMonthFirst(Scanner(lower), '/', now);
  if (!reading) reading = ReadMonthFirst(Scanner(lower), '.', now);
  if (!reading) reading = ReadCompactDate(Scanner(lower), now);
  if (!reading) {
    return Fail(fmt::format(
        "'{}' is no time: allowed are YYYY-MM-DD[THH:MM[:SS]], MM/DD[/YY][-HH:MM[:SS]], "
        "MMDD[YY][-HH:MM[:SS]], HH:MM[:SS][AM|PM], today, midnight, noon, now and now-2days",
        text.substr(0, 80)));
  }
  const auto moment = Moment(reading->date, reading->clock);
  if (!moment)
    return Fail(fmt::format("'{}' is no time: there is no such day or hour", text.substr(0, 80)));
  return *moment;
}

std::string ShownTime(double time) {
  const std::tm local = LocalTime(time);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}", local.tm_year + 1900, local.tm_mon + 1,
                     local.tm_mday, local.tm_hour, local.tm_min, local.tm_sec);
}

std::string ShownSpan(double seconds) {
  const auto total = static_cast<std::int64_t>(std::max(0.0, std::floor(seconds)));
  const std::int64_t days = total / kDaySeconds, rest = total % kDaySeconds;
  const std::string clock =
      fmt::format("{:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60);
  return days > 0 ? fmt::format("{}-{}", days, clock) : clock;
}

double Midnight(double now) { return *Moment(Today(now), Clock{}); }

}  // namespace adaptive_train
