// Host memory and files that hold bytes which the program wants back.
#pragma once

#include <sys/mman.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "commpool/status.h"
#include "src/library/base/file_descriptor.h"

namespace commpool::internal {

// Pages that the system maps for the process: memory, or a file. The destructor unmaps them, so the system has them
// back at once (free() may keep memory).
class HostPages {
 public:
  HostPages() = default;
  // Pages of new memory; not valid where the system has none.
  static HostPages Make(uint64_t bytes) {
    return HostPages(bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  }
  // The pages of a file, to read them, or to write them as well; not valid where the file cannot be mapped.
  static HostPages Of(int file, uint64_t bytes, int protection = PROT_READ) {
    return HostPages(bytes, protection, MAP_SHARED, file);
  }

  bool valid() const { return memory_ != nullptr; }
  // They stay until the process ends.
  void Abandon() { static_cast<void>(memory_.release()); }
  std::byte* data() const { return memory_.get(); }

 private:
  struct Unmap {
    uint64_t bytes;
    void operator()(std::byte* memory) const { munmap(memory, bytes); }
  };

  HostPages(uint64_t bytes, int protection, int flags, int file) : memory_(nullptr, {bytes}) {
    void* const memory = mmap(nullptr, bytes, protection, flags, file, 0);
    if (memory != MAP_FAILED) memory_.reset(static_cast<std::byte*>(memory));
  }

  std::unique_ptr<std::byte, Unmap> memory_;
};

// A file that its owner has made. The destructor removes it, and so does the exit of the process, for nobody destroys
// the process's runtime. A forked child leaves it there at its exit.
class OwnedFile {
 public:
  OwnedFile() = default;
  explicit OwnedFile(std::string path);
  OwnedFile(OwnedFile&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  OwnedFile& operator=(OwnedFile&& other) noexcept {
    std::swap(path_, other.path_);
    return *this;
  }
  ~OwnedFile();

  const std::string& path() const { return path_; }

 private:
  std::string path_;  // empty: none
};

// Writes all the bytes to the file. Returns 0 or the error; the thread gets no signal.
int WriteAt(int file, uint64_t offset, const void* from, uint64_t bytes);

// A file that holds bytes which the program wants back. It is written once; a read fails if somebody has changed it
// since.
//
// Make() takes its room on the disk before the first byte is written. Its pages stay out of the system's cache where
// the file system can do that (O_DIRECT). One thread at a time.
class KeptFile {
 public:
  // Offsets, sizes and addresses in memory must be multiples of it.
  static constexpr uint64_t kAlignment = 4096;

  // Makes a file in the directory. kInvalidArgument for a path that is no directory, and for a directory that lies in
  // memory; kOutOfMemory where the disk has no room.
  static Result<KeptFile> Make(const std::string& directory, uint64_t bytes);

  const std::string& path() const { return owned_.path(); }

  // REQUIRES: all three are multiples of kAlignment.
  Status Write(uint64_t offset, const void* from, uint64_t bytes);
  // Call it when all is written, before Read and Map: they notice whoever writes to the file from now on.
  Status Seal();

  // kFailedPrecondition, for Map too, where the file is gone or is not as Seal() left it.
  Status Read(uint64_t offset, void* to, uint64_t bytes);
  // Maps the whole file; the system reads a page when it is touched. Valid as long as the object lives.
  Result<const std::byte*> Map();

 private:
  KeptFile(std::string path, uint64_t bytes, FileDescriptor file)
      : owned_(std::move(path)), bytes_(bytes), file_(std::move(file)) {}

  Status OpenSealed();
  Status CheckSealed(const FileDescriptor& file) const;
  Status ReadOpened(uint64_t offset, void* to, uint64_t bytes);
  Status Failed(const char* call, int error) const;
  Status NotAsKept(const std::string& how) const;

  OwnedFile owned_;
  uint64_t bytes_ = 0;
  FileDescriptor file_;  // open while the file is written or read
  ino_t number_ = 0;     // the sealed file's number: another file may get its name
  HostPages mapped_;
};

}  // namespace commpool::internal
