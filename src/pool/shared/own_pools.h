// The pools that a thread met last, so that it finds them again without the table's lock. Its own thread only.
//
// None is kept alive: what is found here may have lost its handle since.
#ifndef COMMPOOL_SRC_POOL_SHARED_OWN_POOLS_H_
#define COMMPOOL_SRC_POOL_SHARED_OWN_POOLS_H_

#include <cuda.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "src/pool/shared/own_state.h"
#include "src/pool/shared/pool_table.h"
#include "src/stream/stream_key.h"

namespace commpool::internal {

class OwnPools {
 public:
  ~OwnPools() { own_state.pools = nullptr; }

  // Null where there is none of the handle, and while the thread ends.
  static std::shared_ptr<Pool> FindAtOnce(const PoolTable& table, PoolHandle handle) {
    if (own_state.pools != nullptr) {
      const Known& known = own_state.pools->known_[handle % kKnown];
      if (known.handle == handle && known.table == table.identity()) {
        own_state.pools->last_ = &known;
        return known.pool.lock();
      }
    }
    return Meet(table, handle);
  }

  // The large block of a pool that comes and goes without its lock; 0, or false, where that is none.
  static CUdeviceptr TakeAgain(const PoolTable& table, PoolHandle handle, uint64_t bytes, StreamKey stream) {
    if (own_state.pools == nullptr) return 0;
    const Known& known = own_state.pools->known_[handle % kKnown];
    if (known.handle != handle || known.table != table.identity() || known.repetition.block == nullptr) return 0;
    const CUdeviceptr address = known.repetition.block->TakeAgain(bytes, stream);
    if (address == 0 || !known.repetition.broken->load(std::memory_order_relaxed)) return address;
    known.repetition.block->GiveBack(address);  // as the device stands, it serves nobody in any case
    return 0;
  }
  // Of the pool that the thread asked last.
  static bool GiveBack(const PoolTable& table, CUdeviceptr address) {
    if (own_state.pools == nullptr) return false;
    const Known& known = *own_state.pools->last_;
    return known.repetition.block != nullptr && known.table == table.identity() &&
           known.repetition.block->GiveBack(address);
  }

 private:
  static constexpr size_t kKnown = 16;

  struct Known {
    PoolHandle handle = 0;
    std::shared_ptr<const char> table;  // kept, so that no other table gets its address
    std::weak_ptr<Pool> pool;
    Repetition repetition;
  };

  [[gnu::cold]] static std::shared_ptr<Pool> Meet(const PoolTable& table, PoolHandle handle);

  std::array<Known, kKnown> known_;
  const Known* last_ = &known_[0];
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SHARED_OWN_POOLS_H_
