#include "core/schedule/stage_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "core/limits.h"

namespace adaptive_train {
namespace {

constexpr std::size_t kMostSymbols = 100'000;  // layers and bars, written out
constexpr std::string_view kKnown =
    "E (embedding), t (block), L (head), | (next stage), X*3 and (tt|)*3 are known";

/// Writes a layout out as E, t, L and | alone.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  Result<std::string> Read() {
    std::string symbols;
    while (at_ < text_.size()) {
      if (IsBlank(text_[at_])) {
        ++at_;
        continue;
      }
      auto item = Item();
      if (!item) return item;
      symbols += *item;
      if (symbols.size() > kMostSymbols) return TooLong();
    }
    return symbols;
  }

 private:
  static bool IsBlank(char c) { return c == ',' || c == ' ' || c == '\t'; }

  tl::unexpected<Error> FailHere(std::string_view what) const {
    const unsigned char c = at_ < text_.size() ? static_cast<unsigned char>(text_[at_]) : ' ';
    const std::string place =
        at_ == text_.size()
            ? "the end"
            : fmt::format("character {}, '{}'", at_ + 1, c < 0x20 || c >= 0x7f ? '?' : char(c));
    return Fail(fmt::format("stage layout, {}: {}; {}", place, what, kKnown));
  }
  static tl::unexpected<Error> TooLong() {
    return Fail(fmt::format("stage layout: more than {} layers and stages", kMostSymbols));
  }

  /// A letter, a bar or a group, as often as it says.
  Result<std::string> Item() {
    std::string symbols;
    if (text_[at_] == '(') {
      auto group = Group();
      if (!group) return group;
      symbols = *group;
    } else if (std::string_view("EtL|").find(text_[at_]) != std::string_view::npos) {
      symbols = text_[at_++];
    } else {
      return FailHere(text_[at_] == 'm' ? "this model has no multi-token prediction"
                                        : "nothing of that name");
    }
    return Repeated(symbols);
  }

  Result<std::string> Group() {
    std::string symbols;
    for (++at_; at_ < text_.size() && text_[at_] != ')';) {
      if (IsBlank(text_[at_])) {
        ++at_;
        continue;
      }
      if (text_[at_] == '(') return FailHere("a group within a group");
      auto item = Item();
      if (!item) return item;
      symbols += *item;
      if (symbols.size() > kMostSymbols) return TooLong();
    }
    if (at_ == text_.size()) return FailHere("a group without its )");
    ++at_;
    return symbols;
  }

  Result<std::string> Repeated(const std::string& symbols) {
    if (at_ == text_.size() || text_[at_] != '*') return symbols;
    ++at_;
    std::size_t times = 0;
    const auto [end, error] =
        std::from_chars(text_.data() + at_, text_.data() + text_.size(), times);
    if (error != std::errc() || times == 0) return FailHere("a number above 0 must follow *");
    at_ = static_cast<std::size_t>(end - text_.data());
    if (times > kMostSymbols || symbols.size() * times > kMostSymbols) return TooLong();
    std::string repeated;
    for (std::size_t i = 0; i < times; ++i) repeated += symbols;
    return repeated;
  }

  const std::string_view text_;
  std::size_t at_ = 0;
};

/// Of layers without bars.
Result<void> CheckLayers(std::string layers, int blocks) {
  std::erase(layers, '|');
  if (std::count(layers.begin(), layers.end(), 'E') != 1 || layers.front() != 'E')
    return Fail("stage layout: E, the embedding, must be there once, as the first layer");
  if (std::count(layers.begin(), layers.end(), 'L') != 1 || layers.back() != 'L')
    return Fail("stage layout: L, the head, must be there once, as the last layer");
  const auto found = std::count(layers.begin(), layers.end(), 't');
  if (found != blocks)
    return Fail(fmt::format("stage layout: {} blocks (t), the model has {}", found, blocks));
  return {};
}

std::string LayersText(const StageLayers& stage, int layers) {
  const bool embedding = stage.first_layer == 0 && stage.end_layer > 0;
  const bool head = stage.end_layer == layers && stage.first_layer < layers;
  const int blocks = stage.end_layer - stage.first_layer - (embedding ? 1 : 0) - (head ? 1 : 0);
  std::string text = embedding ? "E" : "";
  text +=
      blocks < 3 ? std::string(static_cast<std::size_t>(blocks), 't') : fmt::format("t*{}", blocks);
  return head ? text + "L" : text;
}

}  // namespace

Result<std::vector<StageLayers>> StageLayoutFromText(std::string_view text, int blocks) {
  const auto symbols = Reader(text).Read();
  if (!symbols) return tl::unexpected<Error>(symbols.error());
  if (const auto right = CheckLayers(*symbols, blocks); !right)
    return tl::unexpected<Error>(right.error());
  std::vector<StageLayers> stages{{0, 0}};
  for (const char symbol : *symbols) {
    const int end = stages.back().end_layer;
    if (symbol == '|') {
      stages.push_back({end, end});
    } else {
      ++stages.back().end_layer;
    }
  }
  if (stages.size() > kMostRanks)
    return Fail(
        fmt::format("stage layout: {} stages, at most {} are possible", stages.size(), kMostRanks));
  return stages;
}

std::string ToText(const std::vector<StageLayers>& stages) {
  std::string text;
  for (std::size_t i = 0; i < stages.size();) {
    const std::string layers = LayersText(stages[i], stages.back().end_layer);
    // The last stage has no bar behind it, so that it is never part of a group.
    std::size_t end = i + 1;
    while (end + 1 < stages.size() && LayersText(stages[end], stages.back().end_layer) == layers)
      ++end;
    if (i + 1 == stages.size()) return text + layers;
    text += end - i == 1 ? layers + "|" : fmt::format("({}|)*{}", layers, end - i);
    i = end;
  }
  return text;
}

}  // namespace adaptive_train
