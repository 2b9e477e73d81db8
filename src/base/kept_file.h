// A file that holds what a program wants back: written once, and read only where nobody has changed it since.
//
// Its room on the disk is taken before the first byte is written, and its pages stay out of the system's cache where
// the file system lets them (O_DIRECT). It goes with its object, or as the process exits. One thread at a time.
#ifndef COMMPOOL_SRC_BASE_KEPT_FILE_H_
#define COMMPOOL_SRC_BASE_KEPT_FILE_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "commpool/status.h"
#include "src/base/file_descriptor.h"
#include "src/base/host_pages.h"

namespace commpool::internal {

class KeptFile {
 public:
  // Of offsets, sizes and addresses in memory.
  static constexpr uint64_t kAlignment = 4096;

  // kInvalidArgument for a directory that is none, or that lies in memory; kOutOfMemory where its disk has no room.
  static Result<KeptFile> Make(const std::string& directory, uint64_t bytes);

  KeptFile(KeptFile&& other) noexcept;
  KeptFile& operator=(KeptFile&&) = delete;
  ~KeptFile();

  const std::string& path() const { return path_; }

  // REQUIRES: all three are multiples of kAlignment.
  Status Write(uint64_t offset, const void* from, uint64_t bytes);
  // All is written: whoever writes to it from now on is noticed.
  Status Seal();

  // kFailedPrecondition where the file is gone, or is not as Seal() left it. Seal() comes before both.
  Status Read(uint64_t offset, void* to, uint64_t bytes);
  // All of it, read as its pages are touched; valid as long as the object.
  Result<const std::byte*> Map();

 private:
  KeptFile(std::string path, uint64_t bytes, FileDescriptor file);

  Status OpenSealed();
  Status CheckSealed(const FileDescriptor& file) const;
  Status ReadOpened(uint64_t offset, void* to, uint64_t bytes);
  Status Failed(const char* call, int error) const;
  Status Spoilt(const std::string& how) const;

  std::string path_;  // empty: moved away
  uint64_t bytes_ = 0;
  FileDescriptor file_;  // while it is written or read
  ino_t number_ = 0;     // of the file, once it is sealed: another one may have its name
  HostPages mapped_;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_BASE_KEPT_FILE_H_
