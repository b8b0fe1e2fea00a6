// A munged of a test's own, with a key of its own or another's.
#pragma once

#include <munge.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace adaptive_train {

/// Runs until it is destroyed. `folder` is made, and must be one that all users may enter.
class Munged {
 public:
  explicit Munged(const std::filesystem::path& folder) : folder_(folder) {
    MakeFolder();
    std::string key;
    std::random_device random;
    for (int i = 0; i < 128; ++i) key += static_cast<char>(random());
    std::ofstream(folder / "key", std::ios::binary) << key;
    Start();
  }
  /// With the key of `other`, and with `library` put before its own.
  Munged(const std::filesystem::path& folder, const Munged& other, const std::string& library)
      : folder_(folder), library_(library) {
    MakeFolder();
    std::filesystem::copy_file(other.folder_ / "key", folder / "key");
    Start();
  }
  ~Munged() { End(); }

  std::string Socket() const { return folder_ / "socket"; }
  void Signal(int signal) const { ::kill(process_, signal); }

 private:
  void MakeFolder() const {
    std::filesystem::create_directory(folder_);
    std::filesystem::permissions(folder_, std::filesystem::perms(0755));
  }

  void Start() {
    std::filesystem::permissions(folder_ / "key", std::filesystem::perms(0600));
    std::vector<std::string> words = {"munged", "--foreground", "--force", "--num-threads=2",
                                      "--socket=" + Socket()};
    for (const char* file : {"key", "log", "pid", "seed"})
      words.push_back("--" + std::string(file) + "-file=" + (folder_ / file).string());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    process_ = ::fork();
    if (process_ == 0) {
      ::umask(022);
      if (!library_.empty()) ::setenv("LD_PRELOAD", library_.c_str(), 1);
      ::freopen("/dev/null", "w", stderr);
      ::execvp("/usr/sbin/munged", argv.data());
      ::_exit(127);
    }
    munge_ctx_t context = ::munge_ctx_create();
    ::munge_ctx_set(context, MUNGE_OPT_SOCKET, Socket().c_str());
    char* credential = nullptr;
    for (int i = 0; i < 300 && credential == nullptr; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      ::munge_encode(&credential, context, "", 0);
    }
    ::munge_ctx_destroy(context);
    if (credential == nullptr) throw std::runtime_error("munged does not start");
    std::free(credential);
  }
  void End() const {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }

  std::filesystem::path folder_;
  std::string library_ = {};
  pid_t process_ = -1;
};

}  // namespace adaptive_train
