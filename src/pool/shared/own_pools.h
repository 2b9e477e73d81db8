// The pools that a thread met last, so that it finds them again without the table's lock. Its own thread only.
//
// None is kept alive: what is found here may have lost its handle since.
#ifndef COMMPOOL_SRC_POOL_SHARED_OWN_POOLS_H_
#define COMMPOOL_SRC_POOL_SHARED_OWN_POOLS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "src/pool/shared/own_state.h"
#include "src/pool/shared/pool_table.h"

namespace commpool::internal {

class OwnPools {
 public:
  ~OwnPools() { own_state.pools = nullptr; }

  // Null where there is none of the handle, and while the thread ends.
  static std::shared_ptr<Pool> FindAtOnce(const PoolTable& table, PoolHandle handle) {
    if (own_state.pools != nullptr) {
      const Known& known = own_state.pools->known_[handle % kKnown];
      if (known.handle == handle && known.table == table.identity()) return known.pool.lock();
    }
    return Meet(table, handle);
  }

 private:
  static constexpr size_t kKnown = 16;

  struct Known {
    PoolHandle handle = 0;
    std::shared_ptr<const char> table;  // kept, so that no other table gets its address
    std::weak_ptr<Pool> pool;
  };

  [[gnu::cold]] static std::shared_ptr<Pool> Meet(const PoolTable& table, PoolHandle handle);

  std::array<Known, kKnown> known_;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SHARED_OWN_POOLS_H_
