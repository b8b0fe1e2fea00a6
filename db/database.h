// SQLite as objects that own what they open. One thread at a time uses a database and all that
// belongs to it, and what SQLite refuses is thrown as a DatabaseError.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>

struct sqlite3;
struct sqlite3_stmt;

namespace adaptive_train {

/// sqlite.org/rescode.html lists the codes.
class DatabaseError : public std::runtime_error {
 public:
  DatabaseError(const char* text, int extended_code)
      : std::runtime_error(text), extended_code_(extended_code) {}
  int code() const { return extended_code_ & 0xFF; }
  int extended_code() const { return extended_code_; }

 private:
  int extended_code_;
};

class Statement;

/// An open SQLite file, which keeps the statements that it has compiled.
class Database {
 public:
  enum class Mode { kReadWrite, kCreate };

  /// Opens `path`, or a database in memory for ":memory:". Only kCreate makes a file that is not
  /// there. Its statements wait up to `patience` for other processes that lock the file.
  explicit Database(const std::filesystem::path& path, Mode mode = Mode::kReadWrite,
                    std::chrono::milliseconds patience = {});
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  /// Runs one statement or several, which need no values and whose rows do not matter.
  void Run(const std::string& sql);
  /// The first column of the first row that a statement gives, which must give one.
  std::int64_t Number(std::string_view sql);
  std::string Text(std::string_view sql);

  std::int64_t LastInsertedId() const;
  /// For what else SQLite can do; it stays this object's.
  sqlite3* handle() const { return handle_; }

 private:
  friend class Statement;
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const;
  };
  using Compiled = std::unique_ptr<sqlite3_stmt, Finalize>;

  sqlite3* handle_ = nullptr;
  std::unordered_map<std::string, Compiled> idle_;  // statements, by their text
};

/// A statement with values for ?1, ?2, ... Its database must outlive it. Between a first Step and
/// the statement's end, or the next Bind, SQLite keeps a lock for reading.
class Statement {
 public:
  Statement(Database& database, std::string_view text);
  ~Statement();
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  /// Begins anew, with these values; an empty optional is NULL. It keeps copies of texts.
  template <class... Values>
  Statement& Bind(const Values&... values) {
    Reset();
    bound_ = 0;
    return BindMore(values...);
  }
  /// Values for what follows those that Bind was given, before the first Step.
  template <class... Values>
  Statement& BindMore(const Values&... values) {
    (BindOne(++bound_, values), ...);
    return *this;
  }
  /// Goes to the next row. Whether there is one.
  bool Step();
  /// Runs it to its end; its rows do not matter. How many rows it has inserted, changed or deleted.
  std::int64_t Run();

 private:
  friend class RowReader;

  void Reset();
  void BindOne(int index, std::int64_t value);
  void BindOne(int index, double value);
  void BindOne(int index, std::string_view value);
  void BindOne(int index, const std::string& value) { BindOne(index, std::string_view(value)); }
  void BindOne(int index, const char* value) { BindOne(index, std::string_view(value)); }
  void BindOne(int index, std::nullopt_t);
  template <class T>
  void BindOne(int index, const std::optional<T>& value) {
    value ? BindOne(index, *value) : BindOne(index, std::nullopt);
  }
  void Check(int code);

  Database& database_;
  std::unordered_map<std::string, Database::Compiled>::node_type text_and_compiled_;
  sqlite3_stmt* compiled_ = nullptr;
  int bound_ = 0;  // values
};

/// Reads the columns of a statement's current row from left to right. SQLite converts what has
/// another type.
class RowReader {
 public:
  explicit RowReader(const Statement& statement, int first = 0)
      : row_(statement.compiled_), index_(first) {}

  RowReader& operator>>(std::int64_t& value);
  RowReader& operator>>(double& value);
  RowReader& operator>>(std::string& value);
  template <class T>
  RowReader& operator>>(std::optional<T>& value) {
    value.reset();
    if (IsNull()) return ++index_, *this;
    return *this >> value.emplace();
  }

 private:
  bool IsNull() const;

  sqlite3_stmt* row_;
  int index_;
};

/// One column of a statement's current row.
template <class Value>
Value Column(const Statement& statement, int index = 0) {
  Value value{};
  RowReader(statement, index) >> value;
  return value;
}

/// Undone at its end, unless it was committed.
class Transaction {
 public:
  /// A writer takes its lock at once. To wait for it with a reader's lock in hand could be a
  /// deadlock, which SQLite refuses.
  enum class Kind { kReads, kWrites };

  Transaction(Database& database, Kind kind);
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;

  void Commit();

 private:
  Database& database_;
  bool open_ = true;
};

}  // namespace adaptive_train
