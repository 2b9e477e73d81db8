#include "src/registration/held_windows.h"

namespace commpool::internal {

uint64_t HeldWindows::Note(const RegisteredRange& range) {
  if (range.kind != RegistrationKind::kWindow || driver_.nccl.ends_windows_in_abort()) return 0;
  MutexLock lock(mutex_);
  bytes_[range.address] = range.bytes;
  return range.bytes;
}

uint64_t HeldWindows::bytes() const {
  MutexLock lock(mutex_);
  uint64_t bytes = 0;
  for (const auto& [address, held] : bytes_) bytes += held;
  return bytes;
}

}  // namespace commpool::internal
