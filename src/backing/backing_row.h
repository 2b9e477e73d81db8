// What the table of backings knows of each: a row, defined in the backing's own file. Rows are constants: any thread.
//
// A new backing is a file that ends with its row, and a line in backings.inc.
#ifndef COMMPOOL_SRC_BACKING_BACKING_ROW_H_
#define COMMPOOL_SRC_BACKING_BACKING_ROW_H_

#include <memory>

#include "commpool/commpool.h"
#include "commpool/status.h"
#include "src/backing/backing.h"
#include "src/backing/nccl_support.h"
#include "src/driver/device_info.h"

namespace commpool::internal {

// The numbers are those of the C ABI.
enum class BackingKind : int {
#define COMMPOOL_BACKING(name, number) k##name = COMMPOOL_BACKING_##number,
#include "src/backing/backings.inc"
#undef COMMPOOL_BACKING
};

// A program's own functions: PyTorch's pluggable signature, with a context last.
struct UserAllocator {
  commpool_user_allocate allocate = nullptr;
  commpool_user_free free = nullptr;
  void* context = nullptr;
};

// What a pool asks for.
struct BackingRequest {
  BackingKind kind = BackingKind::kVmm;
  Placement placement = {};
  UserAllocator user = {};  // of a backing that needs a program's functions
};

// Where a backing can make memory at all.
enum class Places { kDevice, kDeviceAndHostNuma };
// Whether a backing works by itself, or with functions that the program brings.
enum class Maker { kLibrary, kProgram };
// Whether its memory stays at its addresses, or comes in pages that an expandable pool maps where it needs them.
enum class Movement { kNever, kInPages };

struct BackingRow {
  BackingKind kind;
  const char* name;  // "vmm"
  Places places;
  Maker maker;
  Movement movement;
  // Whether the backing can be made here and, where not, why; asked for one of `places`.
  Capability (*can_make)(const Driver& driver, const DeviceInfo& info, const Placement& placement);
  // REQUIRES: can_make() says yes. The driver, and what the request points to, must outlive the backing and its
  // segments.
  Result<std::unique_ptr<Backing>> (*make)(const Driver& driver, const DeviceInfo& info, const BackingRequest& request);
  // The kind of memory that it makes, as far as the device tells.
  MemoryKind (*memory)(const DeviceInfo& info, const Placement& placement);
};

#define COMMPOOL_BACKING(name, number) extern const BackingRow k##name##Backing;
#include "src/backing/backings.inc"
#undef COMMPOOL_BACKING

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_BACKING_BACKING_ROW_H_
