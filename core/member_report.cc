#include "core/member_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>

namespace adaptive_train {
namespace {

using Reports = std::vector<const MemberReport*>;

template <class Predicate>
Reports Those(const Reports& reports, Predicate predicate) {
  Reports some;
  std::ranges::copy_if(reports, std::back_inserter(some),
                       [&](const MemberReport* report) { return std::invoke(predicate, *report); });
  return some;
}

/// Empty where all have the same version. Of two that are equally rare it is the older in text.
Reports OfRareVersion(const Reports& reports) {
  std::map<std::string, std::size_t> count;
  for (const MemberReport* report : reports) ++count[report->version];
  if (count.size() < 2) return {};
  const auto rare = std::ranges::min_element(count, {}, [](const auto& c) { return c.second; });
  return Those(reports, [&](const MemberReport& r) { return r.version == rare->first; });
}

Reports WithFewestCollectives(const Reports& reports) {
  const auto fewest = std::ranges::min(reports, {}, &MemberReport::collectives)->collectives;
  return Those(reports, [fewest](const MemberReport& r) { return r.collectives == fewest; });
}

FirstFailure Said(const MemberReport& report) {
  return {report.rank,
          report.operation.empty() ? report.cause : report.operation + ": " + report.cause};
}

/// Of members that have taken part in equally many collectives, some of them fewer than others.
std::optional<FirstFailure> AmongBehind(const Reports& behind, const Reports& all) {
  const Reports untaken = Those(behind, &MemberReport::untaken);
  if (!untaken.empty() && untaken.size() < all.size())
    return Said(**std::ranges::min_element(untaken, {}, &MemberReport::taken));
  for (const MemberReport* report : behind) {
    const bool awaited = std::ranges::any_of(all, [report](const MemberReport* other) {
      return other->fault == MemberFault::kLate &&
             std::ranges::find(other->peers, report->rank) != other->peers.end();
    });
    if (awaited && report->fault == MemberFault::kNone)
      return FirstFailure{report->rank, "others wait for it, and it waits for nobody"};
  }
  if (behind.size() == all.size()) return std::nullopt;
  return FirstFailure{
      behind.front()->rank,
      fmt::format("it took part in {} collectives, others in more", behind.front()->collectives)};
}

}  // namespace

std::optional<FirstFailure> FirstToFail(std::span<const int> members,
                                        std::span<const MemberReport> reports) {
  Reports all;
  for (const MemberReport& report : reports) all.push_back(&report);
  std::ranges::sort(all, {}, &MemberReport::rank);
  const bool failed = all.size() < members.size() || !Those(all, [](const MemberReport& r) {
                                                        return r.fault != MemberFault::kNone;
                                                      }).empty();
  if (!failed) return std::nullopt;
  if (const Reports odd = OfRareVersion(all); !odd.empty())
    return FirstFailure{odd.front()->rank, odd.front()->version.empty()
                                               ? odd.front()->cause
                                               : "its library is of version " +
                                                     odd.front()->version + ", unlike others'"};
  if (const Reports own =
          Those(all, [](const MemberReport& r) { return r.fault == MemberFault::kOwn; });
      !own.empty())
    return Said(**std::ranges::min_element(own, {}, &MemberReport::taken));
  for (const int member : members)
    if (std::ranges::find(all, member, &MemberReport::rank) == all.end())
      return FirstFailure{member, "it says nothing any more"};
  return AmongBehind(WithFewestCollectives(all), all);
}

}  // namespace adaptive_train
