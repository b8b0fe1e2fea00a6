#include "db/snapshots.h"

#include "db/database.h"
#include "db/message_json.h"
#include "db/sha256.h"

namespace adaptive_train {
namespace {

constexpr const char* kStore = "INSERT OR IGNORE INTO snapshots (hash, text) VALUES (?1, ?2)";

}  // namespace

std::string LastingPartOf(const std::string& snapshot) {
  try {
    nlohmann::json json = ParseBounded(snapshot);
    if (!json.is_object()) return snapshot;
    json.erase("taken_at");
    json.erase("probe_seconds");
    const auto erase = [&](const char* part, std::initializer_list<const char*> members) {
      const auto found = json.find(part);
      if (found == json.end() || !found->is_object()) return;
      for (const char* member : members) found->erase(member);
    };
    erase("memory", {"available_bytes", "limits"});
    erase("processors", {"allowed_cores", "allowed_threads", "quota_cpus"});
    return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  } catch (const nlohmann::json::exception&) {
    return snapshot;
  } catch (const std::length_error&) {
    return snapshot;
  }
}

void KeepWhatLasts(LedgerEntry& entry) {
  if (auto* nodes = std::get_if<std::vector<NodeRecord>>(&entry))
    for (NodeRecord& node : *nodes) node.snapshot = LastingPartOf(node.snapshot);
}

std::string StoreSnapshot(Database& database, const std::string& snapshot) {
  const std::string hash = Sha256Of(snapshot);
  Statement store(database, kStore);
  store.Bind(hash, snapshot).Run();
  return hash;
}

}  // namespace adaptive_train
