#include "core/injection.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "core/json_reader.h"
#include "core/limits.h"

namespace adaptive_train {
namespace {

constexpr std::size_t kMostInjections = 64;
constexpr std::size_t kMostInjectionText = 16384;
constexpr std::int64_t kLastStep = std::int64_t{1} << 40;
constexpr std::size_t kLongestNode = 64;
constexpr std::string_view kForms =
    "kill rank R at step S; freeze rank R at step S; cut node N at step S; slow node N (or rank R) "
    "to P % "
    "from step S to T; fail save at step S";

std::vector<std::string> SplitAt(std::string_view text, std::string_view separators) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of(separators), text.size());
    if (end > 0) parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

bool IsNodeName(const std::string& word) {
  return word.size() <= kLongestNode && std::ranges::all_of(word, [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '-' || c == '.' || c == '_';
         });
}

/// Reads the words of one fault. The first that is wrong sets the error, and nothing is read after
/// it.
class FaultReader {
 public:
  explicit FaultReader(const std::string& text) : words_(SplitAt(text, " \t")) {}

  Result<Injection> Read() {
    const std::string verb = Next();
    using Kind = Injection::Kind;
    if (verb == "kill")
      ReadRankAt(Kind::kKill);
    else if (verb == "freeze")
      ReadRankAt(Kind::kFreeze);
    else if (verb == "cut")
      ReadCut();
    else if (verb == "slow")
      ReadSlow();
    else if (verb == "fail")
      ReadFailSave();
    else
      Refuse(verb, "kill, freeze, cut, slow or fail");
    if (error_.empty() && at_ < words_.size()) Refuse(words_[at_], "the end, or a semicolon");
    if (!error_.empty()) return Fail(error_);
    return injection_;
  }

 private:
  void ReadRankAt(Injection::Kind kind) {
    injection_.kind = kind;
    Expect("rank");
    ReadRank();
    Expect("at");
    ReadStep(injection_.step, 1);
  }
  void ReadCut() {
    injection_.kind = Injection::Kind::kCut;
    Expect("node");
    ReadNode();
    Expect("at");
    ReadStep(injection_.step, 1);
  }
  void ReadSlow() {
    injection_.kind = Injection::Kind::kSlow;
    if (Take("rank")) {
      ReadRank();
    } else {
      Take("node");
      ReadNode();
    }
    Expect("to");
    ReadPercent();
    Expect("from");
    ReadStep(injection_.step, 1);
    Expect("to");
    ReadStep(injection_.last_step, injection_.step);
  }
  void ReadFailSave() {
    injection_.kind = Injection::Kind::kFailSave;
    Expect("save");
    Expect("at");
    ReadStep(injection_.step, 1);
  }

  std::string Next() { return at_ < words_.size() ? words_[at_++] : ""; }
  bool Take(std::string_view word) {
    const bool there = at_ < words_.size() && words_[at_] == word;
    at_ += there ? 1 : 0;
    return there;
  }
  void Expect(std::string_view word) {
    if (const std::string found = Next(); found != word) Refuse(found, word);
  }
  void ReadRank() {
    std::int64_t rank = 0;
    ReadNumber(rank, 0, static_cast<std::int64_t>(kMostRanks) - 1, "a rank");
    injection_.rank = static_cast<int>(rank);
  }
  void ReadNode() {
    injection_.node = Next();
    if (injection_.node.empty() || !IsNodeName(injection_.node))
      Refuse(injection_.node, "the name of a node");
  }
  void ReadStep(std::int64_t& step, std::int64_t least) {
    Take("step");
    ReadNumber(step, least, kLastStep, "a step");
  }
  void ReadNumber(std::int64_t& number, std::int64_t least, std::int64_t most, const char* what) {
    const std::string word = Next();
    const char* const end = word.data() + word.size();
    const auto [stop, error] = std::from_chars(word.data(), end, number);
    if (error != std::errc() || stop != end || number < least || number > most)
      Refuse(word, fmt::format("{} from {} to {}", what, least, most));
  }
  /// "30 %" or "30%".
  void ReadPercent() {
    const std::string word = Next();
    const char* const end = word.data() + word.size();
    const auto [stop, error] = std::from_chars(word.data(), end, injection_.percent);
    const bool has_sign = stop + 1 == end && *stop == '%';
    if (error != std::errc() || (stop != end && !has_sign) ||
        !(injection_.percent >= 1 && injection_.percent < 100))
      Refuse(word, "a percentage from 1 to less than 100");
    if (!has_sign) Expect("%");
  }
  void Refuse(const std::string& word, std::string_view expected) {
    if (!error_.empty()) return;
    error_ = fmt::format("{} instead of {}",
                         word.empty() ? "the end" : "'" + Printable(word, 40) + "'", expected);
  }

  const std::vector<std::string> words_;
  std::size_t at_ = 0;
  Injection injection_;
  std::string error_;
};

}  // namespace

Result<std::vector<Injection>> ParseInjections(std::string_view text) {
  if (text.size() > kMostInjectionText)
    return Fail(
        fmt::format("faults of {} bytes; at most {} are allowed", text.size(), kMostInjectionText));
  std::vector<Injection> injections;
  for (const std::string& part : SplitAt(text, ";")) {
    if (part.find_first_not_of(" \t") == std::string::npos) continue;
    auto injection = FaultReader(part).Read();
    if (!injection)
      return Fail(fmt::format("fault {}: {}; allowed are: {}", injections.size() + 1,
                              injection.error().message, kForms));
    injections.push_back(std::move(*injection));
    if (injections.size() > kMostInjections)
      return Fail(fmt::format("more than {} faults", kMostInjections));
  }
  if (injections.empty()) return Fail(fmt::format("no fault; allowed are: {}", kForms));
  return injections;
}

std::string ToText(const Injection& injection) {
  using Kind = Injection::Kind;
  const std::string whom = injection.rank >= 0 ? fmt::format("rank {}", injection.rank)
                                               : fmt::format("node {}", injection.node);
  switch (injection.kind) {
    case Kind::kKill:
      return fmt::format("kill {} at step {}", whom, injection.step);
    case Kind::kFreeze:
      return fmt::format("freeze {} at step {}", whom, injection.step);
    case Kind::kCut:
      return fmt::format("cut {} at step {}", whom, injection.step);
    case Kind::kSlow:
      return fmt::format("slow {} to {} % from step {} to {}", whom, injection.percent,
                         injection.step, injection.last_step);
    case Kind::kFailSave:
      break;
  }
  return fmt::format("fail save at step {}", injection.step);
}

std::string ToJson(const std::vector<RunInjection>& injections) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const RunInjection& one : injections)
    list.push_back({{"fault", ToText(one.injection)}, {"done", one.done}});
  const nlohmann::ordered_json json = {{"format_version", kFormatVersion},
                                       {"injections", std::move(list)}};
  return json.dump(1) + "\n";
}

Result<std::vector<RunInjection>> InjectionsFromJson(std::string_view text) {
  return ReadJson<std::vector<RunInjection>>(
      text, kInjectionsFile, [](const nlohmann::json& json) -> Result<std::vector<RunInjection>> {
        std::string error;
        std::vector<RunInjection> injections;
        JsonReader(json, "", error)
            .ReadList(
                "injections",
                [&](const JsonReader& entry) {
                  std::string fault;
                  bool done = false;
                  entry.Read("fault", fault);
                  entry.Read("done", done);
                  const auto parsed = ParseInjections(fault);
                  if (!parsed || parsed->size() != 1) return entry.Refuse("fault", "no fault");
                  injections.push_back({parsed->front(), done});
                },
                kMostInjections);
        if (!error.empty()) return Fail(fmt::format("{}: {}", kInjectionsFile, error));
        return injections;
      });
}

}  // namespace adaptive_train
