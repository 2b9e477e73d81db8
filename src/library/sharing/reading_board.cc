#include "src/library/sharing/reading_board.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <string>

#include "src/library/base/write_signals.h"

namespace commpool::internal {

namespace {

Status Failed(const char* action, int error) {
  return Status(CodeOfError(error, StatusCode::kOutOfMemory),
                std::string(action) + " the words of a shared pool: " + strerror(error));
}

ReadingBoard::Page* Map(int file) {
  void* const mapped = mmap(nullptr, sizeof(ReadingBoard::Page), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return mapped == MAP_FAILED ? nullptr : static_cast<ReadingBoard::Page*>(mapped);
}

}  // namespace

Result<std::pair<ReadingBoard, FileDescriptor>> ReadingBoard::Make() {
  FileDescriptor file(memfd_create("commpool-reads", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const WriteSignalsBlocked no_signals;  // a limit of file sizes is one of memory files too
  // Sealed, so that no importer cuts the file under the owner's feet.
  if (!file.valid() || ftruncate(file.get(), sizeof(Page)) != 0 ||
      fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return Failed("making", errno);
  }
  Page* const page = Map(file.get());
  if (page == nullptr) return Failed("mapping", errno);
  return std::pair(ReadingBoard(page), std::move(file));
}

Result<ReadingBoard> ReadingBoard::Open(const FileDescriptor& descriptor) {
  struct stat about = {};
  if (fstat(descriptor.get(), &about) != 0 || about.st_size != sizeof(Page)) {
    return Status(StatusCode::kInvalidArgument, "the owner of the pool sent another file than expected");
  }
  Page* const page = Map(descriptor.get());
  return page == nullptr ? Result<ReadingBoard>(Failed("mapping", errno)) : ReadingBoard(page);
}

ReadingBoard::~ReadingBoard() {
  if (page_ != nullptr) munmap(page_, sizeof(Page));
}

void AwaitChange(std::atomic<uint32_t>& word, uint32_t seen) {
  constexpr timespec kAtMost{0, 5'000'000};  // then the caller looks whether the other process is still there
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &kAtMost, nullptr, 0);
}

void WakeWaiters(std::atomic<uint32_t>& word) { syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

}  // namespace commpool::internal
