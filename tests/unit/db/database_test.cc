// SQLite's statements, values, transactions and errors.
#include "db/database.h"

#include <sqlite3.h>

#include <string>

#include "tests/unit/db/store_fixture.h"

namespace adaptive_train::database_test {
namespace {

class DatabaseTest : public testing::Test {
 protected:
  DatabaseTest() { database_.Run("CREATE TABLE t (i INTEGER UNIQUE, d REAL, s TEXT);"); }
  std::int64_t Rows() { return database_.Number("SELECT count(*) FROM t"); }
  bool IsIdle() { return sqlite3_stmt_busy(sqlite3_next_stmt(database_.handle(), nullptr)) == 0; }

  Database database_{":memory:"};
};

TEST_F(DatabaseTest, ValuesComeBackAsTheyWere) {
  Statement insert(database_, "INSERT INTO t VALUES (?1, ?2, ?3)");
  const std::string text("a\0b", 3);
  EXPECT_EQ(insert.Bind(INT64_MIN, 0.1, text).Run(), 1);
  insert.Bind(std::optional<std::int64_t>(), std::optional<double>(), std::string()).Run();
  EXPECT_EQ(database_.LastInsertedId(), 2);

  Statement select(database_, "SELECT i, d, s FROM t ORDER BY rowid");
  std::optional<std::int64_t> i;
  std::optional<double> d;
  std::optional<std::string> s;
  ASSERT_TRUE(select.Step());
  RowReader(select) >> i >> d >> s;
  EXPECT_EQ(i, INT64_MIN);
  EXPECT_EQ(d, 0.1);
  EXPECT_EQ(s, text);
  ASSERT_TRUE(select.Step());
  RowReader(select) >> i >> d >> s;
  EXPECT_EQ(i, std::nullopt);
  EXPECT_EQ(d, std::nullopt);
  EXPECT_EQ(s, "") << "an empty text is not NULL";
  EXPECT_FALSE(select.Step());
}

TEST_F(DatabaseTest, BindBeginsAnew) {
  database_.Run("INSERT INTO t (i) VALUES (1), (2), (3)");
  Statement from(database_, "SELECT i FROM t WHERE i >= ?1 ORDER BY i");
  for (std::int64_t first : {1, 3, 2}) {
    ASSERT_TRUE(from.Bind(first).Step());
    EXPECT_EQ(Column<std::int64_t>(from), first);
  }
}

TEST_F(DatabaseTest, AStatementThatIsCompiledAgainHasNoOldValues) {
  const char* const text = "SELECT ?1 IS NULL";
  { EXPECT_TRUE(Statement(database_, text).Bind("word").Step()); }
  EXPECT_TRUE(IsIdle()) << "a statement that ended keeps no lock";
  EXPECT_EQ(database_.Number(text), 1);
}

TEST_F(DatabaseTest, TheSameTextTwiceAtOnce) {
  database_.Run("INSERT INTO t (i) VALUES (1), (2)");
  const char* const text = "SELECT i FROM t ORDER BY i";
  Statement outer(database_, text);
  std::int64_t rows = 0;
  while (outer.Step())
    for (Statement inner(database_, text); inner.Step();) ++rows;
  EXPECT_EQ(rows, 4);
}

TEST_F(DatabaseTest, ManyTextsAreNotAllKept) {
  for (int i = 0; i < 1000; ++i) database_.Number("SELECT " + std::to_string(i));
  int kept = 0;
  for (sqlite3_stmt* one = nullptr; (one = sqlite3_next_stmt(database_.handle(), one));) ++kept;
  EXPECT_LE(kept, 100);
  database_.Number("SELECT 1 -- " + std::string(100000, 'x'));
  EXPECT_LE(sqlite3_memory_used(), 10 << 20);
}

TEST_F(DatabaseTest, ATransactionThatIsNotCommittedIsUndone) {
  {
    Transaction kept(database_, Transaction::Kind::kWrites);
    database_.Run("INSERT INTO t (i) VALUES (1)");
    kept.Commit();
  }
  {
    Transaction undone(database_, Transaction::Kind::kWrites);
    database_.Run("INSERT INTO t (i) VALUES (2)");
  }
  EXPECT_EQ(Rows(), 1);
  {
    Transaction ended(database_, Transaction::Kind::kWrites);
    database_.Run("ROLLBACK");  // as a full disk does
  }
  EXPECT_EQ(Rows(), 1);
}

TEST_F(DatabaseTest, ErrorsHaveTheirCodes) {
  database_.Run("INSERT INTO t (i) VALUES (1)");
  const auto refusal = [&](const auto& act) {
    try {
      act();
    } catch (const DatabaseError& error) {
      EXPECT_NE(std::string(error.what()), "");
      return error.extended_code();
    }
    return SQLITE_OK;
  };
  Statement insert(database_, "INSERT INTO t (i) VALUES (?1)");
  EXPECT_EQ(refusal([&] { insert.Bind(std::int64_t{1}).Run(); }), SQLITE_CONSTRAINT_UNIQUE);
  EXPECT_EQ(refusal([&] { insert.Bind(std::int64_t{2}).Run(); }), SQLITE_OK) << "and it goes on";
  EXPECT_EQ(refusal([&] { insert.Bind("one", "too many"); }), SQLITE_RANGE);
  EXPECT_EQ(refusal([&] { Statement(database_, "SELEKT 1"); }), SQLITE_ERROR);
  EXPECT_EQ(refusal([&] { Statement(database_, "-- nothing"); }), SQLITE_MISUSE);
  EXPECT_EQ(refusal([&] { database_.Run("SELECT nothing"); }), SQLITE_ERROR);
  EXPECT_EQ(refusal([&] { database_.Number("SELECT i FROM t WHERE i > 9"); }), SQLITE_DONE);
}

class DatabaseFileTest : public StoreTest {};

TEST_F(DatabaseFileTest, OnlyModeCreateMakesAFile) {
  const auto path = Location().path;
  try {
    Database database(path);
    FAIL() << "it was opened";
  } catch (const DatabaseError& error) {
    EXPECT_EQ(error.code(), SQLITE_CANTOPEN);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  Database(path, Database::Mode::kCreate).Run("CREATE TABLE t (i)");
  EXPECT_EQ(Database(path).Number("SELECT count(*) FROM t"), 0);
}

TEST_F(DatabaseFileTest, ALockedFileIsWaitedFor) {
  const auto path = Location().path;
  Database holder(path, Database::Mode::kCreate);
  holder.Run("CREATE TABLE t (i)");
  holder.Run("BEGIN EXCLUSIVE");
  Database waiting(path, Database::Mode::kReadWrite, std::chrono::milliseconds(50));
  const auto began = std::chrono::steady_clock::now();
  try {
    Transaction transaction(waiting, Transaction::Kind::kWrites);
    FAIL() << "it got the lock";
  } catch (const DatabaseError& error) {
    EXPECT_EQ(error.code(), SQLITE_BUSY);
  }
  EXPECT_GE(std::chrono::steady_clock::now() - began, std::chrono::milliseconds(40));
}

}  // namespace
}  // namespace adaptive_train::database_test
