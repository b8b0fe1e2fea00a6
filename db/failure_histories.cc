#include "db/failure_histories.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "db/database.h"
#include "db/outages.h"
#include "db/told_figures.h"

namespace adaptive_train {
namespace {

constexpr const char* kNodeFailures =
    "SELECT owner, time, kind FROM failures"
    " WHERE cluster = ?3 AND host = ?1 AND blamed = 'node' AND time > ?2";
constexpr const char* kLinkFailures =
    "SELECT owner, time, peer_host FROM failures"
    " WHERE cluster = ?3 AND host = ?1 AND blamed = 'link' AND time > ?2";

/// A failure so many half-lives old counts less than a thousandth.
constexpr double kForgottenHalfLives = 10;

/// What failed at one place.
struct Failure {
  double time = 0;
  FailureKind kind = FailureKind::kUnknown;
};
using FailuresByUser = std::map<Owner, std::vector<Failure>>;

/// Of how many failures the median user tells, of two in the middle the fewer.
std::size_t MedianCount(const FailuresByUser& users) {
  std::vector<std::size_t> counts;
  for (const auto& [owner, failures] : users) counts.push_back(failures.size());
  std::ranges::sort(counts);
  return counts[(counts.size() - 1) / 2];
}

/// Those that count for `reader`.
FailuresByUser Counting(FailuresByUser users, Owner reader) {
  if (users.size() < kConfirmingUsers) {
    std::erase_if(users, [&](const auto& user) { return user.first != reader; });
    return users;
  }
  const std::size_t most = MedianCount(users);
  for (auto& [owner, failures] : users) {
    if (owner == reader || failures.size() <= most) continue;
    std::ranges::sort(failures, std::ranges::greater{}, &Failure::time);
    failures.resize(most);
  }
  return users;
}

/// How much the failures of a place weigh, and how old they are.
struct Weight {
  double failures = 0, within_s = 0;
  std::int64_t count = 0;
};

void Add(double time, const ProfileQuery& query, Weight& weight) {
  const double age = std::max(0.0, query.now - time);
  weight.failures += std::exp2(-age / query.failure_half_life_s);
  weight.within_s = std::max(weight.within_s, age);
  ++weight.count;
}

Weight WeightOf(const std::vector<Failure>& failures, const ProfileQuery& query) {
  Weight weight;
  for (const Failure& failure : failures) Add(failure.time, query, weight);
  return weight;
}

/// Of those that count for `reader`.
Weight WeightOf(const FailuresByUser& users, Owner reader, const ProfileQuery& query) {
  if (users.empty()) return {};
  std::vector<double> of_users;
  for (const auto& [owner, failures] : users)
    of_users.push_back(WeightOf(failures, query).failures);
  std::ranges::sort(of_users);
  const double most = of_users[(of_users.size() - 1) / 2];
  Weight all;
  for (const auto& [owner, failures] : users) {
    const Weight weight = WeightOf(failures, query);
    all.failures += owner == reader ? weight.failures : std::min(weight.failures, most);
    all.within_s = std::max(all.within_s, weight.within_s);
    all.count += weight.count;
  }
  return all;
}

/// By kind; the kind that came first at any user's is the first.
std::vector<CountedFailures> Kinds(const FailuresByUser& users) {
  std::vector<Failure> all;
  for (const auto& [owner, failures] : users)
    all.insert(all.end(), failures.begin(), failures.end());
  std::ranges::stable_sort(all, {}, &Failure::time);
  std::vector<CountedFailures> kinds;
  for (const Failure& failure : all) {
    const auto of_kind = std::ranges::find(kinds, failure.kind, &CountedFailures::kind);
    if (of_kind == kinds.end())
      kinds.push_back({failure.kind, 1});
    else
      ++of_kind->count;
  }
  return kinds;
}

/// Calls row(owner, time, text) for each failure of the node that is not forgotten.
template <class Row>
void ForFailures(Statement& statement, const std::string& node, const ProfileQuery& query,
                 const Row& row) {
  statement.Bind(node, query.now - kForgottenHalfLives * query.failure_half_life_s, query.cluster);
  while (statement.Step()) {
    Owner owner = 0;
    double time = 0;
    std::string text;
    RowReader(statement) >> owner >> time >> text;
    row(owner, time, text);
  }
}

FailuresByUser FailuresOfNode(Statement& of_node, const std::string& node,
                              const ProfileQuery& query) {
  FailuresByUser users;
  ForFailures(of_node, node, query, [&](Owner owner, double time, const std::string& kind) {
    if (const auto known = ChoiceOf<FailureKind>(kind)) users[owner].push_back({time, *known});
  });
  return users;
}

/// The node's outages at whose time no failure of `users` is.
std::vector<EpochSeconds> OtherOutages(Database& database, const std::string& node,
                                       const ProfileQuery& query, const FailuresByUser& users) {
  auto outages = OutagesOf(database, query.cluster, node,
                           query.now - kForgottenHalfLives * query.failure_half_life_s);
  for (const auto& [owner, failures] : users) {
    for (const Failure& failure : failures)
      std::erase_if(outages, [&](EpochSeconds outage) {
        return std::abs(outage - failure.time) < kOneOutage;
      });
  }
  return outages;
}

/// What counts of a node for `reader`: of `users`, and of outages. Nothing: its kinds are empty,
/// and it has no outages.
NodeHistory HistoryOf(Database& database, const std::string& node, Owner reader,
                      const ProfileQuery& query, FailuresByUser users) {
  users = Counting(std::move(users), reader);
  const auto outages = OtherOutages(database, node, query, users);
  Weight weight = WeightOf(users, reader, query);
  for (const EpochSeconds time : outages) Add(time, query, weight);
  return {.node = node,
          .failures = weight.failures,
          .kinds = Kinds(users),
          .within_s = weight.within_s,
          .users = std::max<std::int64_t>(1, std::ssize(users)),
          .outages = std::ssize(outages)};
}

using Pair = std::pair<std::string, std::string>;

/// Adds what `node` reported of links to others of `nodes`, by both ends in order.
void AddFailuresOfLinks(Statement& of_link, const std::string& node,
                        const std::set<std::string>& nodes, const ProfileQuery& query,
                        std::map<Pair, FailuresByUser>& links) {
  ForFailures(of_link, node, query, [&](Owner owner, double time, const std::string& peer) {
    if (nodes.contains(peer))
      links[std::minmax(node, peer)][owner].push_back({time, FailureKind::kLinkLost});
  });
}

}  // namespace

FailureHistories ReadHistories(Database& database, Owner reader, const ProfileQuery& query,
                               Presence& presence) {
  const auto leave_out = [&](FailuresByUser& users, const std::string& node) {
    for (auto& [owner, failures] : users) {
      std::erase_if(failures, [&, owner = owner](const Failure& failure) {
        return owner != reader && !presence.Counts(owner, node, failure.time);
      });
    }
    std::erase_if(users, [](const auto& user) { return user.second.empty(); });
  };
  const std::set<std::string> nodes(query.nodes.begin(), query.nodes.end());
  Statement of_node(database, kNodeFailures), of_link(database, kLinkFailures);
  FailureHistories histories;
  std::map<Pair, FailuresByUser> links;
  for (const std::string& node : nodes) {
    FailuresByUser users = FailuresOfNode(of_node, node, query);
    leave_out(users, node);
    NodeHistory history = HistoryOf(database, node, reader, query, std::move(users));
    if (!history.kinds.empty() || history.outages > 0)
      histories.nodes.push_back(std::move(history));
    AddFailuresOfLinks(of_link, node, nodes, query, links);
  }
  for (auto& [ends, users] : links) {
    leave_out(users, ends.first);
    leave_out(users, ends.second);
    users = Counting(std::move(users), reader);
    if (users.empty()) continue;
    const Weight weight = WeightOf(users, reader, query);
    histories.links.push_back(
        {ends.first, ends.second, weight.failures, weight.count, weight.within_s});
  }
  return histories;
}

}  // namespace adaptive_train
