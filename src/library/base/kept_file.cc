#include "src/library/base/kept_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <mutex>
#include <set>

#include "src/library/base/bytes.h"
#include "src/library/base/log.h"
#include "src/library/base/printable.h"
#include "src/library/base/try.h"
#include "src/library/base/write_signals.h"

namespace commpool::internal {

namespace {

// The time of the last write that Seal() gives a file. It is long ago, so every later write changes it, however soon it
// comes.
constexpr timespec kSealed = {.tv_sec = 1, .tv_nsec = 0};

std::string Quoted(const std::string& path) { return "\"" + Printable(path, PATH_MAX) + "\""; }

// The owned files of this process, so that its exit removes them. An exception to "no mutable globals", because the
// handler of an exit has no argument. Any thread.
class FilesAtExit {
 public:
  static FilesAtExit& Get() {
    static auto* const files = new FilesAtExit();
    return *files;
  }

  void Add(const std::string& path) {
    const std::lock_guard lock(mutex_);
    if (process_ != getpid()) paths_.clear();
    process_ = getpid();
    paths_.insert(path);
  }
  void Forget(const std::string& path) {
    const std::lock_guard lock(mutex_);
    paths_.erase(path);
  }

 private:
  FilesAtExit() {
    std::atexit([] { Get().RemoveAll(); });
  }
  void RemoveAll() {
    // A forked child does not own the files, and its copy of the lock may stay locked for ever.
    if (process_ != getpid()) return;
    const std::lock_guard lock(mutex_);
    for (const std::string& path : paths_) unlink(path.c_str());
  }

  std::atomic<pid_t> process_{0};  // the process that owns these files
  std::mutex mutex_;               // not our Mutex: the innermost lock, under which nothing is called
  std::set<std::string> paths_;
};

Status CheckDirectory(const std::string& directory, uint64_t bytes) {
  struct statfs system = {};
  if (statfs(directory.c_str(), &system) != 0) {
    return SystemFailure("directory " + Quoted(directory), errno, StatusCode::kInvalidArgument);
  }
  if (system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC || system.f_type == HUGETLBFS_MAGIC) {
    return InvalidArgument("directory ", Quoted(directory),
                           " lies in the host's memory (tmpfs): name one on a disk, or keep "
                           "in pageable memory");
  }
  const uint64_t left = uint64_t{system.f_bavail} * static_cast<uint64_t>(system.f_bsize);
  if (bytes <= left) return Status();
  return OutOfMemory("the disk of directory ", Quoted(directory), " has no room for ", FormatBytes(bytes), ": ",
                     FormatBytes(left), " are left");
}

// Lets reads and writes go past the system's cache. Returns whether the file system can do that.
bool SetDirect(int file, bool direct) {
  const int flags = fcntl(file, F_GETFL);
  return fcntl(file, F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
}

// Transfers all bytes by repeated calls of pread or pwrite. Returns 0 or the error; EIO where the file ends too early.
template <typename Call>
int Transfer(int file, uint64_t offset, uint64_t bytes, Call call) {
  for (uint64_t done = 0; done < bytes;) {
    const ssize_t count = call(done, bytes - done, static_cast<off_t>(offset + done));
    if (count > 0) {
      done += static_cast<uint64_t>(count);
    } else if (count == 0) {
      return EIO;
    } else if ((errno == EINVAL || errno == EFAULT) && (fcntl(file, F_GETFL) & O_DIRECT) != 0) {
      SetDirect(file, false);  // this disk, or this memory, needs a larger alignment: go through the cache
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

}  // namespace

OwnedFile::OwnedFile(std::string path) : path_(std::move(path)) { FilesAtExit::Get().Add(path_); }

OwnedFile::~OwnedFile() {
  if (path_.empty()) return;
  if (unlink(path_.c_str()) != 0 && errno != ENOENT) {
    Log(LogLevel::kWarning,
        SystemFailure("the file " + Quoted(path_) + ", which nobody needs any more, stays").message());
  }
  FilesAtExit::Get().Forget(path_);
}

int WriteAt(int file, uint64_t offset, const void* from, uint64_t bytes) {
  const WriteSignalsBlocked no_signals;
  return Transfer(file, offset, bytes, [&](uint64_t done, uint64_t rest, off_t at) {
    return pwrite(file, static_cast<const std::byte*>(from) + done, rest, at);
  });
}

Result<KeptFile> KeptFile::Make(const std::string& directory, uint64_t bytes) {
  COMMPOOL_TRY(CheckDirectory(directory, bytes));
  char whole[PATH_MAX];  // the program may change its working directory
  if (realpath(directory.c_str(), whole) == nullptr) {
    return SystemFailure("directory " + Quoted(directory), errno, StatusCode::kInvalidArgument);
  }
  std::string path = std::string(whole) + "/commpool-" + std::to_string(getpid()) + "-XXXXXX";
  FileDescriptor descriptor(mkostemp(path.data(), O_CLOEXEC));
  if (!descriptor.valid()) {
    return SystemFailure("no file can be made in " + Quoted(directory), errno, StatusCode::kInvalidArgument);
  }
  KeptFile file(std::move(path), bytes, std::move(descriptor));
  const WriteSignalsBlocked no_signals;
  int error = 0;
  do {
    error = posix_fallocate(file.file_.get(), 0, static_cast<off_t>(bytes));
  } while (error == EINTR);
  if (error != 0 && error != EOPNOTSUPP && error != EINVAL) return file.Failed("posix_fallocate", error);
  SetDirect(file.file_.get(), true);
  return file;
}

Status KeptFile::Failed(const char* call, int error) const {
  return SystemFailure(std::string(call) + " of " + Quoted(path()) + ", " + FormatBytes(bytes_), error);
}

Status KeptFile::NotAsKept(const std::string& how) const {
  return FailedPrecondition("the file ", Quoted(path()), " with what was kept ", how,
                            ": its contents cannot come back. The blocks can be freed, and the pool closed");
}

Status KeptFile::Write(uint64_t offset, const void* from, uint64_t bytes) {
  const int error = WriteAt(file_.get(), offset, from, bytes);
  return error == 0 ? Status() : Failed("pwrite", error);
}

Status KeptFile::Seal() {
  struct stat facts = {};
  const timespec times[2] = {kSealed, kSealed};
  const WriteSignalsBlocked no_signals;
  if (ftruncate(file_.get(), static_cast<off_t>(bytes_)) != 0) return Failed("ftruncate", errno);
  if (fdatasync(file_.get()) != 0) return Failed("fdatasync", errno);
  if (futimens(file_.get(), times) != 0) return Failed("futimens", errno);
  if (fstat(file_.get(), &facts) != 0) return Failed("fstat", errno);
  number_ = facts.st_ino;
  file_ = FileDescriptor();  // closes it: a pool of a thousand segments has a thousand files
  return Status();
}

Status KeptFile::OpenSealed() {
  FileDescriptor file(open(path().c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return errno == ENOENT ? NotAsKept("is gone") : Failed("open", errno);
  COMMPOOL_TRY(CheckSealed(file));
  SetDirect(file.get(), true);
  file_ = std::move(file);
  return Status();
}

Status KeptFile::CheckSealed(const FileDescriptor& file) const {
  struct stat facts = {};
  if (fstat(file.get(), &facts) != 0) return Failed("fstat", errno);
  if (facts.st_ino != number_) return NotAsKept("is gone, and another one has its name");
  const auto bytes = static_cast<uint64_t>(facts.st_size);
  if (bytes != bytes_) return NotAsKept("has " + FormatBytes(bytes) + " of " + FormatBytes(bytes_));
  if (facts.st_mtim.tv_sec != kSealed.tv_sec || facts.st_mtim.tv_nsec != kSealed.tv_nsec) {
    return NotAsKept("was changed by somebody");
  }
  return Status();
}

Status KeptFile::Read(uint64_t offset, void* to, uint64_t bytes) {
  const Status status = ReadOpened(offset, to, bytes);
  file_ = FileDescriptor();  // nobody may come for the rest
  return status;
}

Status KeptFile::ReadOpened(uint64_t offset, void* to, uint64_t bytes) {
  COMMPOOL_TRY(OpenSealed());
  const int error = Transfer(file_.get(), offset, bytes, [&](uint64_t done, uint64_t rest, off_t at) {
    return pread(file_.get(), static_cast<std::byte*>(to) + done, rest, at);
  });
  COMMPOOL_TRY(CheckSealed(file_));  // only after the read: a change before or during it is noticed
  return error == 0 ? Status() : Failed("pread", error);
}

Result<const std::byte*> KeptFile::Map() {
  if (mapped_.valid()) return mapped_.data();
  COMMPOOL_TRY(OpenSealed());
  mapped_ = HostPages::Of(file_.get(), bytes_);
  const int error = errno;
  file_ = FileDescriptor();
  if (!mapped_.valid()) return Failed("mmap", error);
  return mapped_.data();
}

}  // namespace commpool::internal
