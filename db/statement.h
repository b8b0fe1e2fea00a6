// Binding and reading the values of an SQL statement in one line each.
#pragma once

#include <SQLiteCpp/Column.h>
#include <SQLiteCpp/Statement.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace adaptive_train {

inline void BindOne(SQLite::Statement& statement, int index, std::int64_t value) {
  statement.bind(index, value);
}
inline void BindOne(SQLite::Statement& statement, int index, double value) {
  statement.bind(index, value);
}
inline void BindOne(SQLite::Statement& statement, int index, const std::string& value) {
  statement.bind(index, value);
}
inline void BindOne(SQLite::Statement& statement, int index, std::string_view value) {
  statement.bind(index, std::string(value));
}
template <class T>
void BindOne(SQLite::Statement& statement, int index, const std::optional<T>& value) {
  if (value) {
    BindOne(statement, index, *value);
  } else {
    statement.bind(index);
  }
}

/// Binds the values to ?1, ?2, ... The statement keeps copies. Throws SQLite::Exception.
template <class... Values>
void BindAll(SQLite::Statement& statement, const Values&... values) {
  int index = 0;
  (BindOne(statement, ++index, values), ...);
}

/// Reads the columns of the current row from left to right.
class RowReader {
 public:
  explicit RowReader(SQLite::Statement& statement) : statement_(statement) {}

  RowReader& operator>>(std::int64_t& value) { return value = Next().getInt64(), *this; }
  RowReader& operator>>(double& value) { return value = Next().getDouble(), *this; }
  RowReader& operator>>(std::string& value) { return value = Next().getString(), *this; }
  template <class T>
  RowReader& operator>>(std::optional<T>& value) {
    value.reset();
    if (statement_.getColumn(index_).isNull()) return ++index_, *this;
    return *this >> value.emplace();
  }

 private:
  SQLite::Column Next() { return statement_.getColumn(index_++); }

  SQLite::Statement& statement_;
  int index_ = 0;
};

}  // namespace adaptive_train
