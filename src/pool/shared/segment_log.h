// Writes a line for each segment that a pool makes or gives back, where COMMPOOL_LOG=debug asks for it.
#ifndef COMMPOOL_SRC_POOL_SHARED_SEGMENT_LOG_H_
#define COMMPOOL_SRC_POOL_SHARED_SEGMENT_LOG_H_

#include <memory>

#include "src/pool/shared/memory_observer.h"

namespace commpool::internal {

// Null where nobody asked.
std::unique_ptr<MemoryObserver> MakeSegmentLog();

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SHARED_SEGMENT_LOG_H_
