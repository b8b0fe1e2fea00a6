#include "db/ledger_json.h"

#include "db/record_json.h"

namespace adaptive_train {
namespace {

RecordJson BeginLine(const std::string& uid, std::int64_t number) {
  return {{"format_version", kFormatVersion}, {"run", uid}, {"number", number}};
}

std::string Written(const RecordJson& line) {
  return line.dump(-1, ' ', false, RecordJson::error_handler_t::replace);
}

}  // namespace

std::string LedgerLine(const JobRecord& job) {
  RecordJson line = BeginLine(job.uid, 0);
  line["job"] = ToRecordJson(job);
  return Written(line);
}

std::string LedgerLine(const std::string& uid, const NumberedEntry& entry) {
  RecordJson line = BeginLine(uid, entry.number);
  AddEntry(line, entry.entry);
  return Written(line);
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
