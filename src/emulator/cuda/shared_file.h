// Files that emulated processes share, and locks on their bytes. The kernel keeps the locks with each opening of a
// file, so it lets go of them when a process ends, however it ends, and keeps them with a descriptor that travels.
#pragma once

#include <cstdint>

#include "src/library/base/file_descriptor.h"

namespace commpool::internal::emulator {

// Opens the file behind a descriptor once more, so that it has locks of its own. Invalid if the system refuses.
FileDescriptor OpenAgain(int descriptor);
// Differs between files; 0 for no descriptor.
uint64_t IdentityOf(int descriptor);

// The byte may lie beyond the end of the file.
enum class Lock : short { kShared, kExclusive };
// Returns false if another opening of the file has a lock that excludes it.
bool TryLock(int file, uint64_t byte, Lock lock);
void Unlock(int file, uint64_t byte);
// Says whether such a lock would fail.
bool IsLockedElsewhere(int file, uint64_t byte, Lock lock);
// Blocks until no other opening has the byte exclusively.
void AwaitUnlocked(int file, uint64_t byte);

// What the 64 bytes of a CUipcMemHandle or CUipcEventHandle hold: where another process finds the file.
struct IpcPlace {
  static constexpr uint64_t kMagic = 0x6d6d6f6363706973;
  uint64_t magic = kMagic;
  int32_t process = 0;
  int32_t descriptor = 0;
  uint64_t identity = 0;
  uint64_t record = 0;  // of a bank
  uint64_t serial = 0;  // of the record
  uint64_t bytes = 0;   // that the exporter asked for

  static IpcPlace Of(int file);
  // Opens the file. Invalid if the process has ended or has closed it.
  FileDescriptor Open() const;
};
static_assert(sizeof(IpcPlace) <= 64);

}  // namespace commpool::internal::emulator
