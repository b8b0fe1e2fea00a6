#include "db/outages.h"

#include "db/database.h"

namespace adaptive_train {
namespace {

constexpr const char* kNote =
    "INSERT OR IGNORE INTO outages (cluster, node, time) SELECT ?1, ?2, ?3 WHERE NOT EXISTS"
    " (SELECT 1 FROM outages WHERE cluster = ?1 AND node = ?2 AND abs(time - ?3) < ?4)";
constexpr const char* kOfNode =
    "SELECT time FROM outages WHERE cluster = ?1 AND node = ?2 AND time > ?3 ORDER BY time";

}  // namespace

void NoteOutage(Database& database, const std::string& cluster, const std::string& node,
                EpochSeconds time) {
  Statement(database, kNote).Bind(cluster, node, time, kOneOutage).Run();
}

std::vector<EpochSeconds> OutagesOf(Database& database, const std::string& cluster,
                                    const std::string& node, EpochSeconds since) {
  Statement of_node(database, kOfNode);
  of_node.Bind(cluster, node, since);
  std::vector<EpochSeconds> times;
  while (of_node.Step()) times.push_back(Column<double>(of_node));
  return times;
}

}  // namespace adaptive_train
