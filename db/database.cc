#include "db/database.h"

#include <sqlite3.h>

#include <memory>
#include <utility>

namespace adaptive_train {
namespace {

/// Of texts with a caller's words in them there is no end, and they may be long.
constexpr std::size_t kMostIdle = 64, kLongestIdle = 4096;

[[noreturn]] void Throw(sqlite3* handle) {
  throw DatabaseError(sqlite3_errmsg(handle), sqlite3_extended_errcode(handle));
}

}  // namespace

Database::Database(const std::filesystem::path& path, Mode mode,
                   std::chrono::milliseconds patience) {
  // One thread at a time uses it: SQLite needs no lock of its own.
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX |
                    (mode == Mode::kCreate ? SQLITE_OPEN_CREATE : 0);
  if (sqlite3_open_v2(path.c_str(), &handle_, flags, nullptr) != SQLITE_OK) {
    // sqlite.org/c3ref/open.html: there is a handle to close, unless there was no memory for it.
    const DatabaseError error(sqlite3_errmsg(handle_), sqlite3_extended_errcode(handle_));
    sqlite3_close(handle_);
    throw error;
  }
  sqlite3_busy_timeout(handle_, static_cast<int>(patience.count()));
}

Database::~Database() {
  idle_.clear();
  sqlite3_close(handle_);
}

void Database::Run(const std::string& sql) {
  if (sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) Throw(handle_);
}

std::int64_t Database::Number(std::string_view sql) {
  Statement statement(*this, sql);
  if (!statement.Step()) throw DatabaseError("the statement gives no row", SQLITE_DONE);
  return Column<std::int64_t>(statement);
}

std::string Database::Text(std::string_view sql) {
  Statement statement(*this, sql);
  if (!statement.Step()) throw DatabaseError("the statement gives no row", SQLITE_DONE);
  return Column<std::string>(statement);
}

std::int64_t Database::LastInsertedId() const { return sqlite3_last_insert_rowid(handle_); }

void Database::Finalize::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }

Statement::Statement(Database& database, std::string_view text)
    : database_(database), text_and_compiled_(database.idle_.extract(std::string(text))) {
  if (text_and_compiled_.empty()) {
    sqlite3_stmt* raw = nullptr;
    Check(sqlite3_prepare_v2(database.handle_, text.data(), static_cast<int>(text.size()), &raw,
                             nullptr));
    Database::Compiled compiled(raw);
    if (!compiled) throw DatabaseError("there is no statement in the text", SQLITE_MISUSE);
    std::unordered_map<std::string, Database::Compiled> made;
    made.emplace(text, std::move(compiled));
    text_and_compiled_ = made.extract(made.begin());
  }
  compiled_ = text_and_compiled_.mapped().get();
}

Statement::~Statement() {
  Reset();
  sqlite3_clear_bindings(compiled_);  // which may be long
  auto& idle = database_.idle_;
  if (text_and_compiled_.key().size() > kLongestIdle) return;
  if (idle.size() >= kMostIdle) idle.clear();
  idle.insert(std::move(text_and_compiled_));
}

// What it returns is the error of the last step, which has been thrown.
void Statement::Reset() { sqlite3_reset(compiled_); }

void Statement::Check(int code) {
  if (code != SQLITE_OK) Throw(database_.handle_);
}

void Statement::BindOne(int index, std::int64_t value) {
  Check(sqlite3_bind_int64(compiled_, index, value));
}
void Statement::BindOne(int index, double value) {
  Check(sqlite3_bind_double(compiled_, index, value));
}
void Statement::BindOne(int index, std::string_view value) {
  // A null pointer would bind NULL.
  const char* text = value.empty() ? "" : value.data();
  Check(sqlite3_bind_text64(compiled_, index, text, value.size(), SQLITE_TRANSIENT, SQLITE_UTF8));
}
void Statement::BindOne(int index, std::nullopt_t) { Check(sqlite3_bind_null(compiled_, index)); }

bool Statement::Step() {
  const int code = sqlite3_step(compiled_);
  if (code != SQLITE_ROW && code != SQLITE_DONE) Throw(database_.handle_);
  return code == SQLITE_ROW;
}

std::int64_t Statement::Run() {
  while (Step()) {
  }
  // Its lock does not wait for the next Bind or the end.
  Reset();
  return sqlite3_changes(database_.handle_);
}

bool RowReader::IsNull() const { return sqlite3_column_type(row_, index_) == SQLITE_NULL; }

RowReader& RowReader::operator>>(std::int64_t& value) {
  return value = sqlite3_column_int64(row_, index_++), *this;
}
RowReader& RowReader::operator>>(double& value) {
  return value = sqlite3_column_double(row_, index_++), *this;
}
RowReader& RowReader::operator>>(std::string& value) {
  // In this order: sqlite.org/c3ref/column_blob.html.
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(row_, index_));
  const auto size = static_cast<std::size_t>(sqlite3_column_bytes(row_, index_));
  ++index_;
  if (text == nullptr) return value.clear(), *this;
  return value.assign(text, size), *this;
}

Transaction::Transaction(Database& database, Kind kind) : database_(database) {
  database_.Run(kind == Kind::kWrites ? "BEGIN IMMEDIATE" : "BEGIN");
}

Transaction::~Transaction() {
  // sqlite.org/lang_transaction.html: a full disk and the like have ended it already.
  if (open_ && sqlite3_get_autocommit(database_.handle()) == 0)
    sqlite3_exec(database_.handle(), "ROLLBACK", nullptr, nullptr, nullptr);
}

void Transaction::Commit() {
  database_.Run("COMMIT");
  open_ = false;
}

}  // namespace adaptive_train
