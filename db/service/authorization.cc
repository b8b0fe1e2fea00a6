#include "db/service/authorization.h"

#include <fmt/format.h>

#include <algorithm>

#include "db/database.h"
#include "db/job_writes.h"

namespace adaptive_train {
namespace {

/// The job that a request names; none: it names none, or a run by its uid.
std::optional<std::int64_t> NamedJob(const StoreRequest& request) {
  return std::visit(
      [](const auto& asked) -> std::optional<std::int64_t> {
        if constexpr (requires { asked.job_id; }) return asked.job_id;
        return std::nullopt;
      },
      request);
}

}  // namespace

Result<Access> Authorize(Database& database, const Caller& caller, const StoreRequest& request) {
  const Access own{caller.uid, JobsOf{caller.uid, caller.accounts}};
  const bool reads_all = caller.is_operator && !Writes(request);
  if (const auto job = NamedJob(request)) {
    const auto owner = OwnerOf(database, *job);
    const auto reads = [&] {
      return reads_all || (!Writes(request) && !caller.accounts.empty() &&
                           std::ranges::count(caller.accounts, AccountOf(database, *job)) > 0);
    };
    if (!owner || (*owner != own.owner && !reads()))
      return Fail(fmt::format("job {} is not in the store", *job), ExitCode::kStore);
  }
  if (const auto* take = std::get_if<store_request::TakeIn>(&request)) {
    const auto owner = OwnerOfRun(database, take->run.job.uid);
    if (owner && *owner != own.owner)
      return Fail("this ledger's run is another user's", ExitCode::kStore);
  }
  return reads_all ? Access{caller.uid, std::nullopt} : own;
}

}  // namespace adaptive_train
