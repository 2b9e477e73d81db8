#include "src/emulator/cuda/shared_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

namespace commpool::internal::emulator {

namespace {

FileDescriptor OpenOf(const std::string& process, int descriptor) {
  const std::string path = "/proc/" + process + "/fd/" + std::to_string(descriptor);
  return FileDescriptor(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
}

struct flock Byte(uint64_t byte, short type) {
  struct flock range = {};
  range.l_type = type;
  range.l_whence = SEEK_SET;
  range.l_start = static_cast<off_t>(byte);
  range.l_len = 1;
  return range;
}

short TypeOf(Lock lock) { return lock == Lock::kShared ? F_RDLCK : F_WRLCK; }

}  // namespace

FileDescriptor OpenAgain(int descriptor) { return OpenOf("self", descriptor); }

uint64_t IdentityOf(int descriptor) {
  struct stat about = {};
  return fstat(descriptor, &about) == 0 ? static_cast<uint64_t>(about.st_ino) : 0;
}

bool TryLock(int file, uint64_t byte, Lock lock) {
  struct flock range = Byte(byte, TypeOf(lock));
  return fcntl(file, F_OFD_SETLK, &range) == 0;
}

void Unlock(int file, uint64_t byte) {
  struct flock range = Byte(byte, F_UNLCK);
  fcntl(file, F_OFD_SETLK, &range);
}

bool IsLockedElsewhere(int file, uint64_t byte, Lock lock) {
  struct flock range = Byte(byte, TypeOf(lock));
  return fcntl(file, F_OFD_GETLK, &range) == 0 && range.l_type != F_UNLCK;
}

void AwaitUnlocked(int file, uint64_t byte) {
  struct flock range = Byte(byte, F_RDLCK);
  while (fcntl(file, F_OFD_SETLKW, &range) != 0 && errno == EINTR) {
  }
  Unlock(file, byte);
}

IpcPlace IpcPlace::Of(int file) {
  IpcPlace place;
  place.process = getpid();
  place.descriptor = file;
  place.identity = IdentityOf(file);
  return place;
}

FileDescriptor IpcPlace::Open() const {
  FileDescriptor file = OpenOf(std::to_string(process), descriptor);
  return file.valid() && IdentityOf(file.get()) == identity ? std::move(file) : FileDescriptor();
}

}  // namespace commpool::internal::emulator
