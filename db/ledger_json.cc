#include "db/ledger_json.h"

#include "db/record_json.h"

namespace adaptive_train {
namespace {

/// A line with the content that `add` gives it.
template <class Add>
std::string LineOf(const std::string& uid, std::int64_t number, const Add& add) {
  std::string line;
  {
    JsonObject object(line);
    object.Add("format_version", kFormatVersion).Add("run", uid).Add("number", number);
    add(object);
  }
  return line;
}

}  // namespace

std::string LedgerLine(const JobRecord& job) {
  return LineOf(job.uid, 0, [&](JsonObject& line) { line.Add("job", job); });
}

std::string LedgerLine(const std::string& uid, const NumberedEntry& entry) {
  return LineOf(uid, entry.number, [&](JsonObject& line) { AddEntry(line, entry.entry); });
}

Result<ReadLine> ReadLedgerLine(std::string_view line) {
  return ReadJson<ReadLine>(line, "ledger", [](const nlohmann::json& json) -> Result<ReadLine> {
    std::string error;
    const JsonReader reader(json, "", error);
    ReadLine read;
    std::int64_t number = 0;
    reader.Read("run", read.uid);
    if (!IsRunUid(read.uid)) reader.Refuse("run", "not 32 hexadecimal digits");
    reader.Read("number", number, 0, std::numeric_limits<std::int64_t>::max());
    if (number == 0) {
      JobRecord job = ReadJobRecord(reader.Part("job"));
      job.uid = read.uid;
      read.content = std::move(job);
    } else {
      read.content = NumberedEntry{number, ReadEntry(reader)};
    }
    if (!error.empty()) return Fail("ledger: " + error);
    return read;
  });
}

}  // namespace adaptive_train
