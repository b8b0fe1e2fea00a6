// Checks a store's file and creates its folders before SQLite opens it.
#include "db/store_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "db/file_system.h"

namespace adaptive_train {
namespace {

namespace fs = std::filesystem;

tl::unexpected<Error> Refuse(const fs::path& path, const std::string& why) {
  return Fail(fmt::format("profile store {}: {}", path.string(), why), ExitCode::kStore);
}

Result<void> CheckWritable(const fs::path& store, const fs::path& path, int mode) {
  if (faccessat(AT_FDCWD, path.c_str(), mode, AT_EACCESS) == 0) return {};
  return Refuse(
      store, fmt::format(
                 "{} is not readable and writable to you ({}): change its mode, or give --store "
                 "file:PATH another path",
                 path == store ? "the file" : "the folder " + path.string(), std::strerror(errno)));
}

Result<void> CheckLocal(const fs::path& store, const fs::path& path) {
  const Result<std::string> network = NetworkFileSystemOf(path);
  if (!network) return tl::unexpected(network.error());
  if (network->empty()) return {};
  return Refuse(
      store,
      fmt::format("{} lies on a network file system ({}), where SQLite's locks do not hold: give "
                  "--store file:PATH with a path on a local disk",
                  path.string(), *network));
}

/// Checks the file itself if it exists.
Result<void> CheckFile(const fs::path& path, const fs::file_status& status) {
  if (fs::is_directory(status))
    return Refuse(path,
                  "this is a folder: name a file, such as " + (path / "profiles.db").string());
  if (fs::is_symlink(status))
    return Refuse(path, "this is a symbolic link to nothing: remove it or make its target");
  if (!fs::is_regular_file(status))
    return Refuse(path, "this is no regular file: name another one");
  return CheckWritable(path, path, R_OK | W_OK).and_then([&] { return CheckLocal(path, path); });
}

/// Checks the nearest existing folder above the file, which will hold SQLite's -wal and -shm files
/// too.
Result<void> CheckFolder(const fs::path& path) {
  fs::path folder = path.parent_path();
  struct stat entry {};
  while (stat(folder.c_str(), &entry) != 0) {
    if (errno != ENOENT)
      return Refuse(path, folder.string() + " cannot be reached: " + std::strerror(errno));
    folder = folder.parent_path();
  }
  if (!S_ISDIR(entry.st_mode)) return Refuse(path, folder.string() + " is not a folder");
  // The network check comes first: there even root may be denied writing, and its error says more.
  return CheckLocal(path, folder).and_then([&] {
    return CheckWritable(path, folder, R_OK | W_OK | X_OK);
  });
}

Result<void> MakeFolders(const fs::path& store, const fs::path& folder) {
  if (fs::exists(folder)) return {};
  if (auto made = MakeFolders(store, folder.parent_path()); !made) return made;
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return Refuse(
        store, fmt::format("cannot make the folder {}: {}", folder.string(), std::strerror(errno)));
  }
  return {};
}

}  // namespace

Result<fs::path> PrepareStoreFile(const StoreLocation& location, bool create) {
  std::error_code error;
  const fs::path path = fs::weakly_canonical(location.path, error);
  if (error) return Refuse(location.path, "the path cannot be followed: " + error.message());
  const fs::file_status status = fs::symlink_status(path, error);
  const bool exists = status.type() != fs::file_type::not_found;
  if (status.type() == fs::file_type::none)
    return Refuse(path, "cannot be looked at: " + error.message());

  if (exists) {
    if (auto fit = CheckFile(path, status); !fit) return tl::unexpected(fit.error());
  }
  if (auto fit = CheckFolder(path); !fit) return tl::unexpected(fit.error());
  if (exists) return path;

  if (!create) return Refuse(path, "there is no such file");
  if (auto made = MakeFolders(path, path.parent_path()); !made) return tl::unexpected(made.error());
  if (mknod(path.c_str(), S_IFREG | 0600, 0) != 0 && errno != EEXIST) {
    return Refuse(path, std::string("cannot be made: ") + std::strerror(errno));
  }
  return path;
}

}  // namespace adaptive_train
