// munge by its package: mended by version, patched by changelog, with the hole, or not known.
#include "launcher/doctor/munge_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace adaptive_train::munge_checks_test {
namespace {

using testing::HasSubstr;

Severity Of(const std::string& version, std::optional<std::string> changelog) {
  return CheckMungeVersion({version, std::move(changelog)}).severity;
}

TEST(CheckMungeVersion, NewOnesAndPatchedOnesAreGood) {
  EXPECT_EQ(Of("0.5.18-1.el9", ""), Severity::kGood);
  EXPECT_EQ(Of("1:0.6.0-2", std::nullopt), Severity::kGood);
  EXPECT_EQ(Of("0.5.15-2+deb12u1", "munge (0.5.15-2+deb12u1)\n  * Fix CVE-2026-25506\n"),
            Severity::kGood);
}

TEST(CheckMungeVersion, TheHoleIsTrouble) {
  const Finding finding = CheckMungeVersion({"0.5.13-13.el9", "* 2022 rebuilt\n"});
  EXPECT_EQ(finding.severity, Severity::kTrouble);
  EXPECT_EQ(finding.what, "0.5.13-13.el9 has CVE-2026-25506");
  EXPECT_THAT(finding.mend, HasSubstr("upgrade"));
}

TEST(CheckMungeVersion, WhatIsNotKnownIsANote) {
  EXPECT_EQ(Of("", std::nullopt), Severity::kNote);
  EXPECT_EQ(Of("git-main", ""), Severity::kNote);
  EXPECT_EQ(Of("0.5.15-2", std::nullopt), Severity::kNote);
}

TEST(FindMungePackage, FindsThatOfThisSystem) {
  EXPECT_THAT(FindMungePackage().version, HasSubstr("0.5."));
}

}  // namespace
}  // namespace adaptive_train::munge_checks_test
