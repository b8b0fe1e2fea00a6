#include "db/session_offer.h"

#include <fmt/format.h>

#include <vector>

#include "db/sha256.h"

namespace adaptive_train {
namespace {

constexpr std::string_view kChallenge = "adaptive-traind session 1";
constexpr std::string_view kOffer = "adaptive-traind offer 1";
constexpr std::string_view kAcceptance = "adaptive-traind acceptance 1";
constexpr std::size_t kDigits = 64;

std::vector<std::string_view> LinesOf(std::string_view text) {
  std::vector<std::string_view> lines;
  for (;;) {
    const std::size_t end = text.find('\n');
    lines.push_back(text.substr(0, end));
    if (end == text.npos) return lines;
    text.remove_prefix(end + 1);
  }
}

bool IsHexadecimal(std::string_view text) {
  return text.size() == kDigits && text.find_first_not_of("0123456789abcdef") == text.npos;
}

}  // namespace

std::string ChallengeOf(const std::string& nonce) {
  return fmt::format("{}\n{}", kChallenge, nonce);
}

Result<std::string> ReadChallenge(std::string_view text) {
  const auto lines = LinesOf(text);
  if (lines.size() == 2 && lines[0] == kChallenge && IsHexadecimal(lines[1]))
    return std::string(lines[1]);
  return Fail("what answers does not introduce itself as adaptive-traind of this version does",
              ExitCode::kStore);
}

std::string ToText(const SessionOffer& offer) {
  return fmt::format("{}\n{}\n{}\n{}\n{}", kOffer, offer.service, offer.service_nonce,
                     offer.client_nonce, offer.key);
}

Result<SessionOffer> ReadSessionOffer(std::string_view text) {
  const auto lines = LinesOf(text);
  if (lines.size() != 5 || lines[0] != kOffer || !IsHexadecimal(lines[2]) ||
      !IsHexadecimal(lines[3]) || !IsHexadecimal(lines[4]))
    return Fail("the credential holds no offer of a session", ExitCode::kStore);
  return SessionOffer{std::string(lines[1]), std::string(lines[2]), std::string(lines[3]),
                      std::string(lines[4])};
}

std::string AcceptanceOf(const SessionOffer& offer) {
  return fmt::format("{}\n{}", kAcceptance, Sha256Of(ToText(offer)));
}

}  // namespace adaptive_train
