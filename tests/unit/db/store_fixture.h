// The common parts of the profile store's tests: a temporary folder, child processes, a job to
// store.
#pragma once

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>

#include "db/file_store.h"

namespace adaptive_train {

/// Creates a mount namespace, through a user namespace unless we are root.
inline bool OwnMounts() {
  if (::unshare(::geteuid() == 0 ? CLONE_NEWNS : CLONE_NEWNS | CLONE_NEWUSER) != 0) return false;
  return ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
}

/// A folder that is removed with the test.
class StoreTest : public ::testing::Test {
 protected:
  StoreTest() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "profile-store-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) std::abort();
    folder_ = pattern;
  }
  ~StoreTest() override {
    std::error_code ignored;  // a leftover folder does not fail the test
    std::filesystem::remove_all(folder_, ignored);
  }

  StoreLocation Location() const { return StoreLocation{folder_ / "profiles.db"}; }

  std::filesystem::path folder_;
};

inline JobRecord SampleJob(const std::string& name = "job") {
  JobRecord job;
  job.cluster = "alpha";
  job.submit_time = 1000;
  job.user = "ann";
  job.name = name;
  job.run_dir = "/scratch/ann/runs/1";
  job.config = "[model]\nlayers = 2\n";
  job.options = "reuse=auto";
  job.adaptive_train_version = "0.1.0";
  job.start_time = 1010.5;
  return job;
}

inline std::string BytesOf(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

inline JobQuery EveryJob() {
  JobQuery query;
  query.all_users = query.configs = true;
  return query;
}

/// A child process that runs `body` and then exits, after 60 s at the latest. Start it from the
/// only thread of the process: a fork copies the locks of other threads.
class ChildProcess {
 public:
  explicit ChildProcess(const std::function<std::string()>& body) {
    int ends[2];
    if (pipe(ends) != 0) std::abort();
    pid_ = fork();
    if (pid_ == 0) {
      close(ends[0]);
      alarm(60);
      std::string text;
      try {
        text = body();
      } catch (const std::exception& error) {
        text = std::string("threw ") + error.what();
      }
      const bool written =
          write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
      _exit(written ? 0 : 1);
    }
    close(ends[1]);
    outcome_ = ends[0];
  }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  /// The result of `body`, or how the child died. Call once.
  std::string Outcome() {
    std::string text;
    char buffer[4096];
    for (ssize_t got = 0; (got = read(outcome_, buffer, sizeof buffer)) > 0;) {
      text.append(buffer, static_cast<std::size_t>(got));
    }
    close(outcome_);
    int status = 0;
    waitpid(pid_, &status, 0);
    if (status != 0) text += " (child ended with status " + std::to_string(status) + ")";
    return text;
  }

 private:
  pid_t pid_ = -1;
  int outcome_ = -1;
};

/// Runs `body` in a child process. Returns its result, or how it died.
inline std::string InChild(const std::function<std::string()>& body) {
  return ChildProcess(body).Outcome();
}

/// The message of a refused Open; "opened" if it succeeded, and a note if the exit code is not the
/// store's.
inline std::string Refusal(const StoreLocation& location, StoreOptions options = {}) {
  const auto store = FileStore::Open(location, options);
  if (store) return "opened";
  return store.error().message +
         (store.error().exit_code == ExitCode::kStore ? "" : " (wrong exit code)");
}

}  // namespace adaptive_train
