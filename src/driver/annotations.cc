#include "src/driver/annotations.h"

#include <cstring>

#include "src/driver/emulator_symbols.h"

namespace commpool::internal {

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
  Find(driver, kEmulatorBlockRecorded, &annotations.block_recorded);
  Find(driver, kEmulatorStreamReleased, &annotations.stream_released);
  Find(driver, kEmulatorCaptureAnnounced, &annotations.capture_announced);
  const char* (*setting)(const char* key) = nullptr;
  Find(driver, kEmulatorSetting, &setting);
  const char* const races = setting == nullptr ? nullptr : setting("races");
  annotations.listening = races != nullptr && std::strcmp(races, "yes") == 0 &&
                          annotations.block_allocated != nullptr && annotations.block_freed != nullptr &&
                          annotations.block_recorded != nullptr;
  return annotations;
}

}  // namespace commpool::internal
