// An open SQLite file of the store, which keeps the statements that it has compiled.
#pragma once

#include <SQLiteCpp/Database.h>
#include <SQLiteCpp/Statement.h>

#include <string>
#include <unordered_map>

namespace adaptive_train {

/// One thread at a time.
class StoreDatabase : public SQLite::Database {
 public:
  using SQLite::Database::Database;

 private:
  friend class Prepared;
  /// Of texts with a caller's words in them there is no end, and they may be long.
  static constexpr std::size_t kMostStatements = 64, kLongestText = 4096;

  std::unordered_map<std::string, SQLite::Statement> statements_;  // not in use
};

/// A compiled statement, to be bound and run. It goes back to its database, which must outlive it.
class Prepared {
 public:
  /// Throws SQLite::Exception.
  Prepared(StoreDatabase& database, const std::string& text)
      : database_(database), node_(database.statements_.extract(text)) {
    if (!node_.empty()) return;
    std::unordered_map<std::string, SQLite::Statement> made;
    made.emplace(text, SQLite::Statement(database, text));
    node_ = made.extract(made.begin());
  }
  /// The transaction in which it has run can end.
  ~Prepared() {
    SQLite::Statement& statement = node_.mapped();
    statement.tryReset();
    statement.clearBindings();  // which may be long
    auto& kept = database_.statements_;
    if (node_.key().size() > StoreDatabase::kLongestText) return;
    if (kept.size() >= StoreDatabase::kMostStatements) kept.clear();
    kept.insert(std::move(node_));
  }
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;

  operator SQLite::Statement&() { return node_.mapped(); }
  SQLite::Statement* operator->() { return &node_.mapped(); }

 private:
  StoreDatabase& database_;
  std::unordered_map<std::string, SQLite::Statement>::node_type node_;
};

/// Runs a statement that needs no values. Throws SQLite::Exception.
inline void RunStatement(StoreDatabase& database, const char* text) {
  Prepared(database, text)->exec();
}

}  // namespace adaptive_train
