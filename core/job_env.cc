#include "core/job_env.h"

#include <array>
#include <charconv>
#include <optional>

#include "core/limits.h"

namespace adaptive_train {
namespace {

constexpr std::size_t kShownBytes = 48;
constexpr std::string_view kAllowed =
    "reuse=auto|never, spares=0..1024, compress=auto|off, log=info|debug, separated by commas";

/// `text` in quotes, fit for one line: everything but plain ASCII is escaped, long text is cut.
std::string Shown(std::string_view text) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    if (out.size() > kShownBytes) {
      out += "...";
      break;
    }
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f || c == '"' || c == '\\') {
      out += "\\x";
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
    } else {
      out += c;
    }
  }
  return out + '"';
}

/// The first character that no option contains: such characters cause trouble in logs and shells.
std::optional<std::size_t> FindForbidden(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte <= 0x20 || byte >= 0x7f || text[i] == '"' || text[i] == '\'' || text[i] == '`' ||
        text[i] == '\\')
      return i;
  }
  return std::nullopt;
}

tl::unexpected<Error> BadValue(std::string_view key, std::string_view value,
                               std::string_view allowed) {
  return Fail("bad value " + Shown(value) + " of " + std::string(key) +
              "; allowed: " + std::string(allowed));
}

/// Sets `out` to the value with the given word; words are in the order of the enumeration.
template <class Value>
Result<void> SetWord(std::string_view key, std::string_view given,
                     const std::array<std::string_view, 2>& words, Value& out) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (given == words[i]) {
      out = static_cast<Value>(i);
      return {};
    }
  }
  return BadValue(key, given, std::string(words[0]) + " or " + std::string(words[1]));
}

Result<void> SetNumber(std::string_view key, std::string_view given, int& out) {
  int value = -1;
  const char* end = given.data() + given.size();
  const auto [stop, error] = std::from_chars(given.data(), end, value);
  if (error != std::errc() || stop != end || value < 0 || value > kMaxSpares) {
    return BadValue(key, given, "a whole number from 0 to " + std::to_string(kMaxSpares));
  }
  out = value;
  return {};
}

constexpr std::array<std::string_view, 4> kKeys = {"reuse", "spares", "compress", "log"};
constexpr std::array<std::string_view, 2> kReuseWords = {"auto", "never"};
constexpr std::array<std::string_view, 2> kCompressWords = {"auto", "off"};
constexpr std::array<std::string_view, 2> kLogWords = {"info", "debug"};

Result<void> SetOption(std::size_t key, std::string_view value, JobOptions& options) {
  switch (key) {
    case 0:
      return SetWord(kKeys[key], value, kReuseWords, options.reuse);
    case 1:
      return SetNumber(kKeys[key], value, options.spares);
    case 2:
      return SetWord(kKeys[key], value, kCompressWords, options.compress);
    default:
      return SetWord(kKeys[key], value, kLogWords, options.log);
  }
}

/// Reads one `key=value`; `seen` records the keys so far.
Result<void> ReadItem(std::string_view item, std::array<bool, kKeys.size()>& seen,
                      JobOptions& options) {
  if (item.empty()) return Fail("empty item; allowed: " + std::string(kAllowed));
  const std::size_t equals = item.find('=');
  const std::string_view key = item.substr(0, equals);
  for (std::size_t i = 0; i < kKeys.size(); ++i) {
    if (key != kKeys[i]) continue;
    if (equals == std::string_view::npos)
      return Fail("no value for " + std::string(key) + "; allowed: " + std::string(kAllowed));
    if (seen[i]) return Fail(std::string(key) + " is given twice; give it once");
    seen[i] = true;
    return SetOption(i, item.substr(equals + 1), options);
  }
  return Fail("unknown key " + Shown(key) + "; allowed: " + std::string(kAllowed));
}

}  // namespace

Result<JobOptions> ParseJobOptions(std::string_view text) {
  JobOptions options;
  if (text.empty() || text == "(null)") return options;
  if (text.size() > kMaxOptionBytes) {
    return Fail("the text is " + std::to_string(text.size()) + " bytes long; at most " +
                std::to_string(kMaxOptionBytes) + " are allowed");
  }
  if (const auto place = FindForbidden(text)) {
    return Fail("character " + Shown(text.substr(*place, 1)) + " at byte " +
                std::to_string(*place + 1) + "; allowed: " + std::string(kAllowed));
  }
  std::array<bool, kKeys.size()> seen{};
  for (std::string_view rest = text;;) {
    const std::size_t comma = rest.find(',');
    if (auto read = ReadItem(rest.substr(0, comma), seen, options); !read)
      return tl::unexpected<Error>(read.error());
    if (comma == std::string_view::npos) return options;
    rest.remove_prefix(comma + 1);
  }
}

std::string FormatJobOptions(const JobOptions& options) {
  std::string text = "reuse=";
  text += kReuseWords[static_cast<std::size_t>(options.reuse)];
  text += ",spares=" + std::to_string(options.spares) + ",compress=";
  text += kCompressWords[static_cast<std::size_t>(options.compress)];
  text += ",log=";
  text += kLogWords[static_cast<std::size_t>(options.log)];
  return text;
}

std::string SnapshotPath(std::uint32_t job_id) {
  return std::string(kSnapshotRoot) + "/" + std::to_string(job_id) + "/" + kSnapshotFile;
}

}  // namespace adaptive_train
