// A home on a network file system as its clients see it: another folder, the server's, by FUSE.
//
// usage: network_home SERVER MOUNT-POINT
//
// The mount's type is fuse.nfs4. What clients of NFS meet, this one's users meet as well:
// - There are no locks: ENOLCK.
// - Attributes and names are remembered for some seconds, those of files that are not there, too.
//   Each mount has its own memory. A file that is opened is asked about anew.
// - A file that was open when another client removed or replaced it is stale: ESTALE.
// - The server checks who may do what, and takes root for nobody.
// Goes into the background once it is mounted, and ends with the mount. Needs root.
#define FUSE_USE_VERSION 31
#include <dirent.h>
#include <fcntl.h>
#include <fuse3/fuse.h>
#include <sys/file.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

constexpr double kRememberedSeconds = 3;
constexpr unsigned kNobody = 65534;

std::string g_server;  // an absolute path, set before the mount

std::string At(const char* path) { return g_server + path; }

/// The thread acts for the caller as long as this lives (setfsuid(2) is of a thread).
class AsCaller {
 public:
  AsCaller() {
    const fuse_context* caller = ::fuse_get_context();
    ::setfsgid(caller->uid == 0 ? kNobody : caller->gid);
    ::setfsuid(caller->uid == 0 ? kNobody : caller->uid);
  }
  ~AsCaller() {
    ::setfsuid(0);
    ::setfsgid(0);
  }
  AsCaller(const AsCaller&) = delete;
  AsCaller& operator=(const AsCaller&) = delete;
};

/// What FUSE is told of a system call that returns -1 on failure.
int Told(ssize_t done) { return done < 0 ? -errno : static_cast<int>(done); }

int FileOf(const fuse_file_info* file) { return static_cast<int>(file->fh); }

/// 0, or why the open file cannot be used.
int Stale(const fuse_file_info* file) {
  struct stat there {};
  if (::fstat(FileOf(file), &there) != 0) return -errno;
  return there.st_nlink == 0 ? -ESTALE : 0;
}

void* Init(fuse_conn_info*, fuse_config* config) {
  config->attr_timeout = config->entry_timeout = config->negative_timeout = kRememberedSeconds;
  config->auto_cache = 1;
  config->use_ino = 1;
  ::umask(0);  // the kernel has applied the caller's
  return nullptr;
}

int GetAttributes(const char* path, struct stat* to, fuse_file_info* file) {
  if (file != nullptr) {
    const int stale = Stale(file);
    return stale != 0 ? stale : Told(::fstat(FileOf(file), to));
  }
  const AsCaller as;
  return Told(::lstat(At(path).c_str(), to));
}
int Access(const char* path, int mode) {
  const AsCaller as;
  return Told(::faccessat(AT_FDCWD, At(path).c_str(), mode, AT_EACCESS));
}
int ReadLink(const char* path, char* to, std::size_t size) {
  const AsCaller as;
  const ssize_t got = ::readlink(At(path).c_str(), to, size - 1);
  if (got < 0) return -errno;
  to[got] = '\0';
  return 0;
}
int ReadFolder(const char* path, void* to, fuse_fill_dir_t fill, off_t, fuse_file_info*,
               fuse_readdir_flags) {
  const AsCaller as;
  DIR* folder = ::opendir(At(path).c_str());
  if (folder == nullptr) return -errno;
  while (const dirent* entry = ::readdir(folder))
    fill(to, entry->d_name, nullptr, 0, fuse_fill_dir_flags(0));
  ::closedir(folder);
  return 0;
}
int MakeFolder(const char* path, mode_t mode) {
  const AsCaller as;
  return Told(::mkdir(At(path).c_str(), mode));
}
int RemoveFolder(const char* path) {
  const AsCaller as;
  return Told(::rmdir(At(path).c_str()));
}
int Unlink(const char* path) {
  const AsCaller as;
  return Told(::unlink(At(path).c_str()));
}
int SymLink(const char* target, const char* path) {
  const AsCaller as;
  return Told(::symlink(target, At(path).c_str()));
}
int Link(const char* from, const char* to) {
  const AsCaller as;
  return Told(::link(At(from).c_str(), At(to).c_str()));
}
int Rename(const char* from, const char* to, unsigned flags) {
  const AsCaller as;
  return Told(::renameat2(AT_FDCWD, At(from).c_str(), AT_FDCWD, At(to).c_str(), flags));
}
int ChangeMode(const char* path, mode_t mode, fuse_file_info*) {
  const AsCaller as;
  return Told(::chmod(At(path).c_str(), mode));
}
int ChangeOwner(const char* path, uid_t user, gid_t group, fuse_file_info*) {
  const AsCaller as;
  return Told(::lchown(At(path).c_str(), user, group));
}
int Truncate(const char* path, off_t size, fuse_file_info* file) {
  if (file != nullptr) {
    const int stale = Stale(file);
    return stale != 0 ? stale : Told(::ftruncate(FileOf(file), size));
  }
  const AsCaller as;
  return Told(::truncate(At(path).c_str(), size));
}
int SetTimes(const char* path, const timespec times[2], fuse_file_info*) {
  const AsCaller as;
  return Told(::utimensat(AT_FDCWD, At(path).c_str(), times, AT_SYMLINK_NOFOLLOW));
}

int Opened(int descriptor, fuse_file_info* file) {
  if (descriptor < 0) return -errno;
  file->fh = static_cast<std::uint64_t>(descriptor);
  return 0;
}
/// A server passes no O_DIRECT on to its own disk, whose sectors are none of a client's business.
int FlagsOf(const fuse_file_info* file) { return (file->flags & ~O_DIRECT) | O_CLOEXEC; }
int Create(const char* path, mode_t mode, fuse_file_info* file) {
  const AsCaller as;
  return Opened(::open(At(path).c_str(), FlagsOf(file), mode), file);
}
int Open(const char* path, fuse_file_info* file) {
  const AsCaller as;
  return Opened(::open(At(path).c_str(), FlagsOf(file)), file);
}
int Read(const char*, char* to, std::size_t size, off_t offset, fuse_file_info* file) {
  const int stale = Stale(file);
  return stale != 0 ? stale : Told(::pread(FileOf(file), to, size, offset));
}
int Write(const char*, const char* from, std::size_t size, off_t offset, fuse_file_info* file) {
  const int stale = Stale(file);
  return stale != 0 ? stale : Told(::pwrite(FileOf(file), from, size, offset));
}
int Synchronize(const char*, int, fuse_file_info* file) {
  const int stale = Stale(file);
  return stale != 0 ? stale : Told(::fsync(FileOf(file)));
}
int Release(const char*, fuse_file_info* file) { return Told(::close(FileOf(file))); }
int Lock(const char*, fuse_file_info*, int, struct flock*) { return -ENOLCK; }
int LockFile(const char*, fuse_file_info*, int) { return -ENOLCK; }
int FileSystem(const char* path, struct statvfs* to) {
  return Told(::statvfs(At(path).c_str(), to));
}

fuse_operations Operations() {
  fuse_operations all{};
  all.init = Init;
  all.getattr = GetAttributes;
  all.access = Access;
  all.readlink = ReadLink;
  all.readdir = ReadFolder;
  all.mkdir = MakeFolder;
  all.rmdir = RemoveFolder;
  all.unlink = Unlink;
  all.symlink = SymLink;
  all.link = Link;
  all.rename = Rename;
  all.chmod = ChangeMode;
  all.chown = ChangeOwner;
  all.truncate = Truncate;
  all.utimens = SetTimes;
  all.create = Create;
  all.open = Open;
  all.read = Read;
  all.write = Write;
  all.fsync = Synchronize;
  all.release = Release;
  all.lock = Lock;
  all.flock = LockFile;
  all.statfs = FileSystem;
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: network_home SERVER MOUNT-POINT\n");
    return 2;
  }
  char* server = ::realpath(argv[1], nullptr);
  if (server == nullptr) {
    std::perror(argv[1]);
    return 1;
  }
  g_server = server;
  std::free(server);
  char options[] = "allow_other,subtype=nfs4,fsname=server:/home";
  char option[] = "-o";
  char* words[] = {argv[0], argv[2], option, options, nullptr};
  const fuse_operations operations = Operations();
  return ::fuse_main(4, words, &operations, nullptr);
}
