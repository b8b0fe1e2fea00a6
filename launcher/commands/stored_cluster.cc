#include "launcher/commands/stored_cluster.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/file_io.h"
#include "launcher/nodes/allocation.h"

namespace adaptive_train {
namespace {

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + Printable(word, 60);
  return text;
}

}  // namespace

Result<std::string> ChooseCluster(const std::string& named,
                                  const std::vector<std::string>& stored) {
  const auto holds = [&](const std::string& name) {
    return std::find(stored.begin(), stored.end(), name) != stored.end();
  };
  if (!named.empty() && !holds(named)) {
    return Fail(fmt::format("--cluster: nothing is stored of {}; the store knows {}",
                            Printable(named, 60), Joined(stored)));
  }
  if (!named.empty()) return named;
  if (stored.size() == 1) return stored.front();
  auto here = FindAllocation();
  if (here && holds(here->cluster)) return here->cluster;
  return Fail("the store knows several clusters (" + Joined(stored) + "): name one with --cluster");
}

}  // namespace adaptive_train
