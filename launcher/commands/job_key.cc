#include "launcher/commands/job_key.h"

#include <fmt/format.h>

#include <charconv>

namespace adaptive_train {

Result<JobKey> ParseJobKey(const std::string& word) {
  JobKey key;
  key.local = word.front() == 'L' || word.front() == 'l';
  const char* begin = word.data() + (key.local ? 1 : 0);
  const char* end = word.data() + word.size();
  const auto id = std::from_chars(begin, end, key.id);
  const char* stop = id.ptr;
  bool well = id.ec == std::errc() && key.id > 0;
  if (well && !key.local && stop != end && *stop == '_') {
    const auto task = std::from_chars(stop + 1, end, key.task.emplace());
    well = task.ec == std::errc() && *key.task >= 0;
    stop = task.ptr;
  }
  if (well && stop == end) return key;
  return Fail(
      fmt::format("'{}' is no job: allowed are ids of Slurm jobs (1234), of arrays and their tasks "
                  "(1230, 1230_4), and of local runs (L12)",
                  word.substr(0, 40)));
}

}  // namespace adaptive_train
