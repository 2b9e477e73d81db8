#include "src/driver/annotations.h"

#include "src/driver/emulator_symbols.h"

namespace commpool {

namespace {

template <typename Function>
void Find(const Driver& driver, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(driver.extension(name));
}

}  // namespace

Annotations FindAnnotations(const Driver& driver) {
  Annotations annotations;
  Find(driver, kEmulatorBlockAllocated, &annotations.block_allocated);
  Find(driver, kEmulatorBlockFreed, &annotations.block_freed);
  Find(driver, kEmulatorStreamReleased, &annotations.stream_released);
  Find(driver, kEmulatorCaptureAnnounced, &annotations.capture_announced);
  annotations.listening = annotations.block_allocated != nullptr && annotations.block_freed != nullptr;
  return annotations;
}

}  // namespace commpool
