// SQLite's files on a disk that loses power: what was not synced may be lost, wholly or in part, and
// in any order.
#pragma once

#include <sqlite3.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <new>
#include <random>
#include <string>
#include <vector>

namespace adaptive_train {

/// SQLite's default VFS while it lives; there is one at a time, and it outlives the databases that
/// it opens. Writes go to the real files. Syncs do not: it remembers itself what they would have
/// kept (sqlite.org/vfs.html, sqlite.org/atomiccommit.html). Shared memory is as it was, and no
/// part of what a disk keeps. A deletion is taken as done at once.
class PowerLossVfs {
 public:
  PowerLossVfs() : real_(sqlite3_vfs_find(nullptr)), vfs_(*real_) {
    if (current != nullptr) std::abort();
    current = this;
    vfs_.zName = "power-loss";
    vfs_.szOsFile = static_cast<int>(sizeof(File)) + real_->szOsFile;
    vfs_.pNext = nullptr;
    vfs_.xOpen = Open;
    vfs_.xDelete = Delete;
    sqlite3_vfs_register(&vfs_, 1);
  }
  ~PowerLossVfs() {
    sqlite3_vfs_unregister(&vfs_);
    sqlite3_vfs_register(real_, 1);
    current = nullptr;
  }
  PowerLossVfs(const PowerLossVfs&) = delete;
  PowerLossVfs& operator=(const PowerLossVfs&) = delete;

  /// Writes, truncations and syncs so far.
  std::int64_t operations() const {
    const std::lock_guard lock(mutex_);
    return operations_;
  }
  /// Calls `lost` once, before the operation of this number (from 0), on the thread that asked for
  /// it, with what a disk could have kept by then. Until then no database may be open.
  using Kept = std::map<std::string, std::string>;  // contents by path
  void LosePowerBefore(std::int64_t operation, std::uint64_t seed,
                       std::function<void(const Kept&)> lost) {
    lose_before_ = operation;
    random_.seed(seed);
    lost_ = std::move(lost);
  }

 private:
  struct Change {
    std::int64_t offset = 0;
    std::string data;
    bool truncates = false;  // to `offset`
  };
  struct Contents {
    bool created = false;  // surely there after a loss
    std::string synced;
    std::vector<Change> since;
  };
  /// What SQLite has of an open file; the real one lies behind it.
  struct File {
    sqlite3_file base;
    Contents* contents;  // nullptr: a file that nobody looks for after a loss
    sqlite3_file* Real() { return reinterpret_cast<sqlite3_file*>(this + 1); }
  };
  static File* Of(sqlite3_file* file) { return reinterpret_cast<File*>(file); }
  static sqlite3_file* RealOf(sqlite3_file* file) { return Of(file)->Real(); }
  static const sqlite3_io_methods* MethodsOf(sqlite3_file* file) { return RealOf(file)->pMethods; }

  static void Apply(const Change& change, std::string& to) {
    const auto offset = static_cast<std::size_t>(change.offset);
    if (change.truncates) return to.resize(std::min(to.size(), offset));
    to.resize(std::max(to.size(), offset + change.data.size()));
    std::memcpy(to.data() + offset, change.data.data(), change.data.size());
  }

  /// One of the many that are possible.
  std::string AfterLoss(const Contents& contents) {
    constexpr std::size_t kSector = 512;  // is written whole or not at all
    const double part = std::array{0.0, 0.5, 0.9, 1.0}[random_() % 4];
    std::bernoulli_distribution kept(part);
    std::string after = contents.synced;
    for (const Change& change : contents.since) {
      if (change.truncates) {
        if (kept(random_)) Apply(change, after);
        continue;
      }
      for (std::size_t at = 0; at < change.data.size(); at += kSector) {
        if (kept(random_))
          Apply({change.offset + static_cast<std::int64_t>(at), change.data.substr(at, kSector)},
                after);
      }
    }
    return after;
  }

  /// With the mutex held.
  void Count() {
    if (operations_++ != lose_before_) return;
    Kept all;
    for (const auto& [path, contents] : files_) {
      if (contents.created || random_() % 2 == 0) all[path] = AfterLoss(contents);
    }
    lost_(all);
  }
  void Note(sqlite3_file* file, Change change) {
    if (Of(file)->contents == nullptr) return;
    const std::lock_guard lock(mutex_);
    Count();
    Of(file)->contents->since.push_back(std::move(change));
  }

  static int Open(sqlite3_vfs*, const char* name, sqlite3_file* file, int flags, int* out_flags) {
    File* const opened = new (file) File{};
    sqlite3_vfs* const real = current->real_;
    const bool there = name != nullptr && std::filesystem::exists(name);
    const int result = real->xOpen(real, name, opened->Real(), flags, out_flags);
    if (opened->Real()->pMethods == nullptr) return result;
    static const sqlite3_io_methods methods = Methods();
    opened->base.pMethods = &methods;
    if (result != SQLITE_OK || name == nullptr) return result;
    const std::lock_guard lock(current->mutex_);
    const auto [at, is_new] = current->files_.try_emplace(name);
    opened->contents = &at->second;
    if (is_new && there) {
      std::ifstream in(name, std::ios::binary);
      at->second.synced.assign(std::istreambuf_iterator<char>(in), {});
      at->second.created = true;
    }
    return result;
  }

  static int Delete(sqlite3_vfs*, const char* name, int sync_folder) {
    {
      const std::lock_guard lock(current->mutex_);
      if (const auto at = current->files_.find(name); at != current->files_.end())
        at->second = Contents{};
    }
    return current->real_->xDelete(current->real_, name, sync_folder);
  }

  static int Write(sqlite3_file* file, const void* data, int size, sqlite3_int64 offset) {
    current->Note(file,
                  {offset, std::string(static_cast<const char*>(data), static_cast<size_t>(size))});
    return MethodsOf(file)->xWrite(RealOf(file), data, size, offset);
  }
  static int Truncate(sqlite3_file* file, sqlite3_int64 size) {
    current->Note(file, {size, "", true});
    return MethodsOf(file)->xTruncate(RealOf(file), size);
  }
  static int Sync(sqlite3_file* file, int) {
    if (Of(file)->contents == nullptr) return SQLITE_OK;
    const std::lock_guard lock(current->mutex_);
    current->Count();
    Contents& contents = *Of(file)->contents;
    for (const Change& change : contents.since) Apply(change, contents.synced);
    contents.since.clear();
    contents.created = true;
    return SQLITE_OK;
  }

  /// All others are the real file's. No xFetch: files are not mapped.
  static sqlite3_io_methods Methods() {
    sqlite3_io_methods m{};
    m.iVersion = 2;
    m.xWrite = Write;
    m.xTruncate = Truncate;
    m.xSync = Sync;
    m.xClose = [](sqlite3_file* f) { return MethodsOf(f)->xClose(RealOf(f)); };
    m.xRead = [](sqlite3_file* f, void* to, int size, sqlite3_int64 offset) {
      return MethodsOf(f)->xRead(RealOf(f), to, size, offset);
    };
    m.xFileSize = [](sqlite3_file* f, sqlite3_int64* size) {
      return MethodsOf(f)->xFileSize(RealOf(f), size);
    };
    m.xLock = [](sqlite3_file* f, int lock) { return MethodsOf(f)->xLock(RealOf(f), lock); };
    m.xUnlock = [](sqlite3_file* f, int lock) { return MethodsOf(f)->xUnlock(RealOf(f), lock); };
    m.xCheckReservedLock = [](sqlite3_file* f, int* out) {
      return MethodsOf(f)->xCheckReservedLock(RealOf(f), out);
    };
    m.xFileControl = [](sqlite3_file* f, int operation, void* argument) {
      return MethodsOf(f)->xFileControl(RealOf(f), operation, argument);
    };
    m.xSectorSize = [](sqlite3_file* f) { return MethodsOf(f)->xSectorSize(RealOf(f)); };
    m.xDeviceCharacteristics = [](sqlite3_file* f) {
      return MethodsOf(f)->xDeviceCharacteristics(RealOf(f));
    };
    m.xShmMap = [](sqlite3_file* f, int page, int size, int extend, void volatile** out) {
      return MethodsOf(f)->xShmMap(RealOf(f), page, size, extend, out);
    };
    m.xShmLock = [](sqlite3_file* f, int offset, int count, int flags) {
      return MethodsOf(f)->xShmLock(RealOf(f), offset, count, flags);
    };
    m.xShmBarrier = [](sqlite3_file* f) { MethodsOf(f)->xShmBarrier(RealOf(f)); };
    m.xShmUnmap = [](sqlite3_file* f, int erase) {
      return MethodsOf(f)->xShmUnmap(RealOf(f), erase);
    };
    return m;
  }

  inline static PowerLossVfs* current = nullptr;

  sqlite3_vfs* const real_;
  sqlite3_vfs vfs_;
  mutable std::mutex mutex_;
  std::map<std::string, Contents> files_;
  std::int64_t operations_ = 0, lose_before_ = -1;
  std::function<void(const Kept&)> lost_;
  std::mt19937_64 random_;
};

}  // namespace adaptive_train
