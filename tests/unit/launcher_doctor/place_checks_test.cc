// The store and the run folder as doctor sees them.
#include "launcher/doctor/place_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "db/file_store.h"
#include "tests/unit/spank_plugin/temporary_folder.h"

namespace adaptive_train::place_checks_test {
namespace {

using testing::HasSubstr;

StoreChoice Named(const std::string& path) { return {"file:" + path, "--store", true}; }

TEST(CheckStore, OneThatIsNotThereYetIsGoodAndIsNotMade) {
  const TemporaryFolder folder;
  const Finding finding = CheckStore(Named(folder.Path() + "/a/b/profiles.db"));
  EXPECT_EQ(finding.severity, Severity::kGood);
  EXPECT_THAT(finding.what, HasSubstr("not there yet"));
  EXPECT_FALSE(std::filesystem::exists(folder.Path() + "/a"));
}

TEST(CheckStore, OneThatOpensIsNotTrouble) {
  const TemporaryFolder folder;
  const std::string path = folder.Path() + "/profiles.db";
  ASSERT_TRUE(FileStore::Open(StoreLocation{path}));
  EXPECT_NE(CheckStore(Named(path)).severity, Severity::kTrouble);
}

TEST(CheckStore, AServiceThatIsNotThereIsTrouble) {
  const TemporaryFolder folder;
  const Finding finding = CheckStore({"unix:" + folder.Path() + "/socket", "--store", true});
  EXPECT_EQ(finding.severity, Severity::kTrouble);
  EXPECT_EQ(finding.what, "profile store unix:" + folder.Path() +
                              "/socket: cannot connect: No such file or directory");
  EXPECT_THAT(finding.mend, HasSubstr("start adaptive-traind"));
}

TEST(CheckStore, FaultsAreTroubleWithTheStoresOwnWords) {
  const TemporaryFolder folder;
  folder.Write("text.db", std::string(5000, 'z'));
  const Finding corrupt = CheckStore(Named(folder.Path() + "/text.db"));
  EXPECT_EQ(corrupt.severity, Severity::kTrouble);
  EXPECT_THAT(corrupt.what, HasSubstr("the file is corrupt"));
  EXPECT_FALSE(corrupt.why.empty());
  EXPECT_THAT(corrupt.mend, HasSubstr("ADAPTIVE_TRAIN_STORE"));
  EXPECT_EQ(CheckStore({"/no/scheme.db", "--store", true}).severity, Severity::kTrouble);
  const Finding below_file = CheckStore(Named(folder.Path() + "/text.db/profiles.db"));
  EXPECT_EQ(below_file.severity, Severity::kTrouble);
  EXPECT_THAT(below_file.what, HasSubstr("text.db is not a folder"));
}

TEST(CheckRunFolder, ADiskOfThisHostIsANoteWhereNoJobCanShowMore) {
  const TemporaryFolder folder;
  const Finding finding = CheckRunFolder(folder.Path() + "/runs/7", Allocation{});
  EXPECT_EQ(finding.severity, Severity::kNote);
  EXPECT_THAT(finding.what, HasSubstr(folder.Path() + " looks like a disk of this host alone"));
  folder.Write("file", "");
  EXPECT_EQ(CheckRunFolder(folder.Path() + "/file/runs", Allocation{}).severity,
            Severity::kTrouble);
}

}  // namespace
}  // namespace adaptive_train::place_checks_test
