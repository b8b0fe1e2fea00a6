#include "db/service/request_writer.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <utility>

#include "core/seconds.h"
#include "db/database.h"
#include "db/service/answer_request.h"
#include "db/store_error.h"

namespace adaptive_train {
namespace {

using store_answer::Refused;

constexpr const char* kBegin = "SAVEPOINT request";
constexpr const char* kKeep = "RELEASE request";
constexpr const char* kUndo = "ROLLBACK TO request";
/// sqlite.org/pragma.html: with WAL, FULL syncs the log at each commit.
constexpr const char* kDurable = "PRAGMA synchronous = FULL";
/// The log grows while a copy of the database is made, and then becomes as short again.
constexpr const char* kShortLog = "PRAGMA journal_size_limit = 67108864";

/// A full disk refuses every request until somebody reads the log.
constexpr std::chrono::minutes kBetweenTroubles{1};

}  // namespace

RequestWriter::RequestWriter(OpenedDatabase opened, Retention retention, Log log)
    : path_(opened.location.path),
      log_(std::move(log)),
      database_(std::move(opened.database)),
      retention_(retention) {
  database_->Run(kDurable);
  database_->Run(kShortLog);
  thread_ = std::thread([this] { Serve(); });
}

RequestWriter::~RequestWriter() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void RequestWriter::Add(const Caller& caller, StoreRequest request, Done done) {
  {
    std::lock_guard lock(mutex_);
    waiting_.push_back({caller, std::move(request), std::move(done)});
  }
  changed_.notify_one();
}

void RequestWriter::Add(std::function<void(Database&)> change, Done done) {
  {
    std::lock_guard lock(mutex_);
    waiting_.push_back({{}, {}, std::move(done), std::move(change)});
  }
  changed_.notify_one();
}

void RequestWriter::Keep(Retention retention) {
  {
    std::lock_guard lock(mutex_);
    retention_ = retention;
    look_ = true;
  }
  changed_.notify_one();
}

StoreAnswer RequestWriter::AnswerTo(const Item& item) {
  if (!item.change) return AnswerRequest(*database_, item.caller, item.request);
  item.change(*database_);
  return store_answer::Done{};
}

void RequestWriter::Serve() {
  for (;;) {
    std::vector<Item> batch;
    Retention retention;
    {
      std::unique_lock lock(mutex_);
      const auto due = [this] { return ending_ || look_ || !waiting_.empty(); };
      if (retention_.Any()) {
        changed_.wait_until(lock, purge_at_, due);
      } else {
        changed_.wait(lock, due);
      }
      if (waiting_.empty() && ending_) return;
      batch.swap(waiting_);
      retention = retention_;
      if (std::exchange(look_, false)) purge_at_ = {};
    }
    if (!batch.empty()) {
      const std::vector<StoreAnswer> answers = Commit(batch);
      for (std::size_t i = 0; i < batch.size(); ++i) batch[i].done(answers[i]);
    }
    if (retention.Any() && std::chrono::steady_clock::now() >= purge_at_) Purge(retention);
  }
}

void RequestWriter::Purge(const Retention& retention) {
  std::chrono::milliseconds next = retention.period;
  try {
    const auto before = [](std::chrono::days age) {
      return EpochSecondsNow() - static_cast<double>(std::chrono::seconds(age).count());
    };
    const std::int64_t jobs =
        retention.jobs ? PurgeJobs(*database_, before(*retention.jobs), retention.jobs_at_once) : 0;
    const auto rows = [&](const auto& purge, const std::optional<std::chrono::days>& age) {
      return age ? purge(*database_, before(*age), retention.rows_at_once) : 0;
    };
    const std::int64_t figures = rows(PurgeFigures, retention.figures);
    const std::int64_t failures = rows(PurgeFailures, retention.failures);
    // Where one of these is kept for ever, so is what it counts by.
    const bool of_presence = retention.jobs && retention.figures && retention.failures;
    const std::int64_t presence =
        of_presence
            ? rows(PurgePresence, std::max({retention.jobs, retention.figures, retention.failures}))
            : 0;
    purged_.jobs += jobs;
    purged_.figures += figures;
    purged_.failures += failures;
    if (jobs == retention.jobs_at_once ||
        std::max({figures, failures, presence}) >= retention.rows_at_once) {
      next = retention.pause;
    } else if (purged_.jobs + purged_.figures + purged_.failures > 0) {
      log_({LOG_INFO,
            fmt::format("removed {} old jobs, {} old speeds and {} old failures", purged_.jobs,
                        purged_.figures, purged_.failures),
            {{"REMOVED_JOBS", std::to_string(purged_.jobs)},
             {"REMOVED_SPEEDS", std::to_string(purged_.figures)},
             {"REMOVED_FAILURES", std::to_string(purged_.failures)}}});
      purged_ = {};
    }
  } catch (const DatabaseError& error) {
    log_({LOG_ERR,
          StoreError(path_, "removing what is old", kBusyTimeout, error, database_.get()).message});
  }
  purge_at_ = std::chrono::steady_clock::now() + next;
}

std::vector<StoreAnswer> RequestWriter::Commit(const std::vector<Item>& batch) {
  std::vector<StoreAnswer> answers;
  try {
    Transaction transaction(*database_, Transaction::Kind::kWrites);
    for (const Item& item : batch) answers.push_back(Write(item));
    transaction.Commit();
    TellOfTheEnd();
  } catch (const DatabaseError& error) {
    const Error told = StoreError(path_, "storing requests", kBusyTimeout, error, database_.get());
    answers.assign(batch.size(), Refused{told.message});
    Tell(told.message, batch.size());
  }
  return answers;
}

void RequestWriter::Tell(const std::string& trouble, std::size_t refused) {
  refused_ += static_cast<std::int64_t>(refused);
  const auto now = std::chrono::steady_clock::now();
  if (now < tell_at_) return;
  tell_at_ = now + kBetweenTroubles;
  log_({LOG_ERR, trouble, {{"REFUSED_REQUESTS", std::to_string(refused_)}}});
}

void RequestWriter::TellOfTheEnd() {
  if (refused_ == 0 || std::chrono::steady_clock::now() < tell_at_) return;
  log_({LOG_NOTICE,
        fmt::format("requests are stored again, after {} had been refused", refused_),
        {{"REFUSED_REQUESTS", std::to_string(refused_)}}});
  refused_ = 0;
}

StoreAnswer RequestWriter::Write(const Item& item) {
  Statement(*database_, kBegin).Run();
  StoreAnswer answer;
  try {
    answer = AnswerTo(item);
  } catch (const DatabaseError& error) {
    // sqlite.org/lang_transaction.html: a full disk and the like end the whole transaction.
    if (sqlite3_get_autocommit(database_->handle()) != 0) throw;
    const Error told = StoreError(path_, "storing a request", kBusyTimeout, error, database_.get());
    answer = Refused{told.message};
    Tell(told.message, 1);
  }
  if (std::holds_alternative<Refused>(answer)) Statement(*database_, kUndo).Run();
  Statement(*database_, kKeep).Run();
  return answer;
}

}  // namespace adaptive_train
