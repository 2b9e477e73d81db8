// Host memory, or a file, that holds copies of blocks. KeptBlocks owns it. One thread at a time: the pool's growth lock
// guards it.
#ifndef COMMPOOL_SRC_POOL_BLOCKS_KEPT_MEMORY_H_
#define COMMPOOL_SRC_POOL_BLOCKS_KEPT_MEMORY_H_

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <variant>

#include "commpool/status.h"
#include "src/base/host_pages.h"
#include "src/base/kept_file.h"
#include "src/driver/handles.h"
#include "src/pool/options.h"
#include "src/pool/shared/memory_account.h"

namespace commpool::internal {

class KeptMemory {
 public:
  // Makes memory or a file of so many bytes, which count in the account as long as the object lives. REQUIRES: the
  // device's context is current.
  static Result<KeptMemory> Make(const Driver& driver, const KeptCopies& copies, uint64_t bytes,
                                 MemoryAccount& account);

  // The address for the driver's copies; 0 for a file, whose contents go through pinned memory.
  CUdeviceptr address() const;
  KeptFile* file() { return std::get_if<KeptFile>(&place_); }
  // Call it when all copies are in it. A file that somebody changes after that is refused (KeptFile::Seal).
  Status Seal() { return file() == nullptr ? Status() : file()->Seal(); }
  // The first byte, for the program to read. Valid as long as the object lives.
  Result<const std::byte*> Read();
  // Call it when the runtime ends: then no driver call releases it.
  void Abandon();

 private:
  using Place = std::variant<PinnedMemory, HostPages, KeptFile>;

  KeptMemory(Place place, Room room) : place_(std::move(place)), room_(std::move(room)) {}

  Place place_;
  Room room_;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_BLOCKS_KEPT_MEMORY_H_
