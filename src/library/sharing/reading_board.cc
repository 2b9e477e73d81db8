#include "src/library/sharing/reading_board.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <ctime>

#include "src/library/base/try.h"
#include "src/library/base/write_signals.h"

namespace commpool::internal {

Result<ReadingBoard> ReadingBoard::Map(const FileDescriptor& file) {
  ReadingBoard board;
  board.pages_ = HostPages::Of(file.get(), sizeof(Page), PROT_READ | PROT_WRITE);
  if (board.valid()) return board;
  return SystemFailure("mapping the words of a shared pool", errno, StatusCode::kOutOfMemory);
}

Result<std::pair<ReadingBoard, FileDescriptor>> ReadingBoard::Make() {
  FileDescriptor file(memfd_create("commpool-reads", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const WriteSignalsBlocked no_signals;  // a limit of file sizes is one of memory files too
  // Sealed, so that no importer cuts the file under the owner's feet.
  if (!file.valid() || ftruncate(file.get(), sizeof(Page)) != 0 ||
      fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return SystemFailure("making the words of a shared pool", errno, StatusCode::kOutOfMemory);
  }
  ReadingBoard board = COMMPOOL_TRY(Map(file));
  return std::pair(std::move(board), std::move(file));
}

Result<ReadingBoard> ReadingBoard::Open(const FileDescriptor& descriptor) {
  struct stat about = {};
  if (fstat(descriptor.get(), &about) != 0 || about.st_size != sizeof(Page)) {
    return InvalidArgument("the owner of the pool sent another file than expected");
  }
  return Map(descriptor);
}

void AwaitChange(std::atomic<uint32_t>& word, uint32_t seen) {
  constexpr timespec kAtMost{0, 5'000'000};  // then the caller looks whether the other process is still there
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &kAtMost, nullptr, 0);
}

void WakeWaiters(std::atomic<uint32_t>& word) { syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

}  // namespace commpool::internal
