#include "runtime/wireup/rendezvous.h"

#include <fmt/format.h>
#include <pmix.h>

#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <thread>

namespace adaptive_train {
namespace {

constexpr const char* kAddressKey = "adaptive_train.address";
constexpr std::chrono::seconds kFinalizeDeadline{1};

tl::unexpected<Error> FailPmix(const char* call, pmix_status_t status) {
  return Fail(fmt::format("{}: {}", call, PMIx_Error_string(status)), ExitCode::kRankFailure);
}

/// Runs a blocking PMIx call without a deadline on its own thread. If the deadline passes, the
/// thread is abandoned and may still touch its data: `call` must own what it uses.
template <class T>
std::optional<T> Within(std::chrono::milliseconds deadline, std::function<T()> call) {
  auto promise = std::make_shared<std::promise<T>>();
  auto result = promise->get_future();
  std::thread([promise, call = std::move(call)] { promise->set_value(call()); }).detach();
  if (result.wait_for(deadline) != std::future_status::ready) return std::nullopt;
  return result.get();
}

Result<std::string> Get(const std::string& nspace, pmix_rank_t rank) {
  pmix_proc_t proc;
  PMIX_LOAD_PROCID(&proc, nspace.c_str(), rank);
  // The fence has collected all values: a missing one is an error, not something to wait for.
  pmix_info_t info[1];
  PMIX_INFO_CONSTRUCT(&info[0]);
  bool immediate = true;
  PMIX_INFO_LOAD(&info[0], PMIX_IMMEDIATE, &immediate, PMIX_BOOL);
  pmix_value_t* value = nullptr;
  const pmix_status_t status = PMIx_Get(&proc, kAddressKey, info, 1, &value);
  PMIX_INFO_DESTRUCT(&info[0]);
  if (status != PMIX_SUCCESS)
    return FailPmix(fmt::format("PMIx_Get of rank {}", rank).c_str(), status);
  Result<std::string> bytes =
      Fail(fmt::format("PMIx_Get of rank {}: not a byte object", rank), ExitCode::kRankFailure);
  if (value->type == PMIX_BYTE_OBJECT)
    bytes = std::string(value->data.bo.bytes, value->data.bo.size);
  PMIX_VALUE_RELEASE(value);
  return bytes;
}

Result<void> Put(const std::string& text) {
  pmix_value_t value;
  PMIX_VALUE_CONSTRUCT(&value);
  value.type = PMIX_BYTE_OBJECT;
  value.data.bo.size = text.size();
  value.data.bo.bytes = static_cast<char*>(std::malloc(text.size()));
  if (value.data.bo.bytes == nullptr)
    return Fail("PMIx_Put: out of memory", ExitCode::kRankFailure);
  std::memcpy(value.data.bo.bytes, text.data(), text.size());
  pmix_status_t status = PMIx_Put(PMIX_GLOBAL, kAddressKey, &value);
  PMIX_VALUE_DESTRUCT(&value);
  if (status != PMIX_SUCCESS) return FailPmix("PMIx_Put", status);
  status = PMIx_Commit();
  if (status != PMIX_SUCCESS) return FailPmix("PMIx_Commit", status);
  return {};
}

using FenceDone = std::shared_ptr<std::promise<pmix_status_t>>;

void OnFence(pmix_status_t status, void* data) {
  std::unique_ptr<FenceDone> done(static_cast<FenceDone*>(data));
  (*done)->set_value(status);
}

/// A fence over all ranks of the namespace. With COLLECT_DATA: without it Slurm's fence does not
/// wait for other nodes.
Result<void> Fence(const std::string& nspace, std::chrono::milliseconds deadline) {
  pmix_proc_t all;
  PMIX_LOAD_PROCID(&all, nspace.c_str(), PMIX_RANK_WILDCARD);
  pmix_info_t info[1];
  PMIX_INFO_CONSTRUCT(&info[0]);
  bool collect = true;
  PMIX_INFO_LOAD(&info[0], PMIX_COLLECT_DATA, &collect, PMIX_BOOL);
  auto done = std::make_shared<std::promise<pmix_status_t>>();
  auto outcome = done->get_future();
  auto handle = std::make_unique<FenceDone>(done);
  const pmix_status_t status = PMIx_Fence_nb(&all, 1, info, 1, OnFence, handle.get());
  PMIX_INFO_DESTRUCT(&info[0]);
  if (status != PMIX_SUCCESS) return FailPmix("PMIx_Fence_nb", status);
  handle.release();  // OnFence frees it if it runs after the deadline
  if (outcome.wait_for(deadline) != std::future_status::ready) {
    return Fail(fmt::format("PMIx fence did not end within {} ms", deadline.count()),
                ExitCode::kRankFailure);
  }
  const pmix_status_t fenced = outcome.get();
  if (fenced != PMIX_SUCCESS) return FailPmix("PMIx fence", fenced);
  return {};
}

}  // namespace

Result<Rendezvous> Rendezvous::Join(std::chrono::milliseconds deadline) {
  struct Joined {
    pmix_status_t status;
    pmix_proc_t self;
  };
  auto joined = Within<Joined>(deadline, [] {
    Joined j{};
    j.status = PMIx_Init(&j.self, nullptr, 0);
    return j;
  });
  if (!joined)
    return Fail(fmt::format("PMIx_Init did not end within {} ms", deadline.count()),
                ExitCode::kRankFailure);
  if (joined->status != PMIX_SUCCESS) return FailPmix("PMIx_Init", joined->status);
  pmix_proc_t all;
  PMIX_LOAD_PROCID(&all, joined->self.nspace, PMIX_RANK_WILDCARD);
  pmix_value_t* value = nullptr;
  const pmix_status_t status = PMIx_Get(&all, PMIX_JOB_SIZE, nullptr, 0, &value);
  if (status != PMIX_SUCCESS) return FailPmix("PMIx_Get of the job's size", status);
  const int size = value->type == PMIX_UINT32 ? static_cast<int>(value->data.uint32) : 0;
  PMIX_VALUE_RELEASE(value);
  if (size < 1) return Fail("PMIx gives no job size", ExitCode::kRankFailure);
  return Rendezvous(static_cast<int>(joined->self.rank), size, joined->self.nspace);
}

Rendezvous::Rendezvous(Rendezvous&& other) noexcept
    : rank_(other.rank_),
      size_(other.size_),
      nspace_(std::exchange(other.nspace_, std::string())) {}

Rendezvous::~Rendezvous() {
  if (nspace_.empty()) return;
  Within<pmix_status_t>(kFinalizeDeadline, [] { return PMIx_Finalize(nullptr, 0); });
}

Result<std::vector<std::string>> Rendezvous::Exchange(const std::string& value,
                                                      std::chrono::milliseconds fence_deadline) {
  auto put = Put(value);
  if (!put) return tl::unexpected(put.error());
  auto fenced = Fence(nspace_, fence_deadline);
  if (!fenced) return tl::unexpected(fenced.error());
  std::vector<std::string> values;
  for (int rank = 0; rank < size_; ++rank) {
    auto got = Get(nspace_, static_cast<pmix_rank_t>(rank));
    if (!got) return tl::unexpected(got.error());
    values.push_back(std::move(*got));
  }
  return values;
}

}  // namespace adaptive_train
