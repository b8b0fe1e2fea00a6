#include "spank_plugin/snapshot_folder.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "core/job_env.h"
#include "spank_plugin/descriptor.h"

namespace adaptive_train::plugin {
namespace {

constexpr char kTemporaryFile[] = ".node.json.new";
constexpr int kFolderFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

tl::unexpected<Error> FailErrno(const std::string& path, int error) {
  return Fail(path + ": " + std::strerror(error));
}

/// Opens a folder below `parent` (or AT_FDCWD) that only we can have prepared.
Result<Descriptor> OpenFolder(int parent, const std::string& name, const std::string& path) {
  Descriptor folder(::openat(parent, name.c_str(), kFolderFlags));
  if (!folder.IsOpen()) return FailErrno(path, errno);
  struct stat info {};
  if (::fstat(folder.Get(), &info) != 0) return FailErrno(path, errno);
  if (info.st_uid != ::geteuid() || (info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return Fail(path + ": must belong to root, and nobody else may write there");
  }
  return folder;
}

Result<Descriptor> MakeFolder(int parent, const std::string& name, const std::string& path) {
  const bool made = ::mkdirat(parent, name.c_str(), 0755) == 0;
  if (!made && errno != EEXIST) return FailErrno(path, errno);
  auto folder = OpenFolder(parent, name, path);
  // The umask may be stricter than readers need.
  if (folder && made && ::fchmod(folder->Get(), 0755) != 0) return FailErrno(path, errno);
  return folder;
}

Result<void> WriteFileIn(int folder, std::string_view text, const std::string& path) {
  ::unlinkat(folder, kTemporaryFile, 0);  // left by a prolog that was killed
  Descriptor file(
      ::openat(folder, kTemporaryFile, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!file.IsOpen() || ::fchmod(file.Get(), 0644) != 0) return FailErrno(path, errno);
  while (!text.empty()) {
    const ssize_t n = ::write(file.Get(), text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FailErrno(path, errno);
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  if (::renameat(folder, kTemporaryFile, folder, kSnapshotFile) != 0) return FailErrno(path, errno);
  return {};
}

}  // namespace

Result<void> WriteSnapshot(const std::string& root, std::uint32_t job_id, std::string_view text) {
  const auto root_folder = MakeFolder(AT_FDCWD, root, root);
  if (!root_folder) return tl::unexpected<Error>(root_folder.error());
  const std::string name = std::to_string(job_id);
  const std::string path = root + "/" + name;
  const auto folder = MakeFolder(root_folder->Get(), name, path);
  if (!folder) return tl::unexpected<Error>(folder.error());
  auto written = WriteFileIn(folder->Get(), text, path + "/" + kSnapshotFile);
  // Removes an older snapshot as well: the job would take it for its own.
  if (!written) static_cast<void>(RemoveSnapshot(root, job_id));
  return written;
}

Result<void> RemoveSnapshot(const std::string& root, std::uint32_t job_id) {
  const auto root_folder = OpenFolder(AT_FDCWD, root, root);
  if (!root_folder) return {};  // WriteSnapshot refuses such a root, so it holds nothing of ours
  const std::string name = std::to_string(job_id);
  const std::string path = root + "/" + name;
  struct stat info {};
  if (::fstatat(root_folder->Get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 &&
      errno == ENOENT)
    return {};
  const auto folder = OpenFolder(root_folder->Get(), name, path);
  if (!folder) return tl::unexpected<Error>(folder.error());
  for (const char* file : {kTemporaryFile, kSnapshotFile}) {
    if (::unlinkat(folder->Get(), file, 0) != 0 && errno != ENOENT)
      return FailErrno(path + "/" + file, errno);
  }
  if (::unlinkat(root_folder->Get(), name.c_str(), AT_REMOVEDIR) != 0)
    return FailErrno(path, errno);
  return {};
}

}  // namespace adaptive_train::plugin
