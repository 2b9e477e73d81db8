// Tells the emulator of blocks, streams and captures, so that it can judge how a program uses them.
#ifndef COMMPOOL_SRC_POOL_SHARED_EMULATOR_OBSERVER_H_
#define COMMPOOL_SRC_POOL_SHARED_EMULATOR_OBSERVER_H_

#include <memory>

#include "src/driver/loader.h"
#include "src/pool/shared/memory_observer.h"

namespace commpool::internal {

// Null where the driver is a real one.
std::unique_ptr<MemoryObserver> MakeEmulatorObserver(const Driver& driver);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SHARED_EMULATOR_OBSERVER_H_
