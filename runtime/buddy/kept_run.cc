#include "runtime/buddy/kept_run.h"

#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "core/kept_folder.h"

namespace adaptive_train {
namespace {

std::string_view Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

std::optional<std::int64_t> NumberIn(const char* name) {
  const std::string_view text = Variable(name);
  std::int64_t number = 0;
  const auto [last, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc() || last != text.data() + text.size())
    return std::nullopt;
  return number;
}

}  // namespace

std::string KeptRun::FolderName(const std::string& node) const {
  return KeptFolderPrefix(::geteuid(), job, node) + key;
}

KeptRun KeptRunFromEnvironment() {
  const auto attempt = NumberIn("ADAPTIVE_TRAIN_ATTEMPT");
  if (!attempt) return {};
  return {std::string(Variable("ADAPTIVE_TRAIN_MEMORY_KEY")),
          std::string(Variable("ADAPTIVE_TRAIN_JOB")), *attempt,
          NumberIn("ADAPTIVE_TRAIN_COMMITTED")};
}

int FirstOnNode(const Plan& plan, int rank) {
  const std::string& node = plan.ranks[static_cast<std::size_t>(rank)].device.node;
  int first = 0;
  while (plan.ranks[static_cast<std::size_t>(first)].device.node != node) ++first;
  return first;
}

}  // namespace adaptive_train
