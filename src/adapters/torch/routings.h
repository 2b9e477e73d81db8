// Which of PyTorch's private pools serve whom now (torch.cuda.use_mem_pool, graphs), and which of them are ours. Only
// the router knows a torch.cuda.MemPool that is bound to one of our pools: PyTorch's native allocator never hears of
// it.
#ifndef COMMPOOL_SRC_ADAPTERS_TORCH_ROUTINGS_H_
#define COMMPOOL_SRC_ADAPTERS_TORCH_ROUTINGS_H_

#include <c10/cuda/CUDACachingAllocator.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "src/adapters/torch/known_pools.h"
#include "src/adapters/torch/native.h"

namespace commpool::torch_adapter {

using StreamFilter = std::function<bool(cudaStream_t)>;

struct Routing {
  uint64_t number = 0;     // scopes and routings count together; 0: none
  commpool_pool pool = 0;  // 0: a pool of PyTorch's own
};

// Owns the table of our MemPools and of the open routings. The router asks it for each allocation that something may
// catch.
class Routings {
 public:
  // Makes `pool` the next private pool that this thread makes; 0 takes that back.
  static void BindNext(commpool_pool pool) { next_bound_ = pool; }
  // Binds `id`, or counts one more user of it. Returns false if the id is PyTorch's own.
  bool CreateOrIncrease(int device, const MempoolId_t& id);
  // Returns the number of users of our pool; nothing if the id is PyTorch's own.
  std::optional<int> Users(const MempoolId_t& id);
  bool IsOurs(const MempoolId_t& id) { return Users(id).has_value(); }
  // Says whether a MemPool of ours is alive.
  bool AnyOfOurs();
  // Returns false if the id is PyTorch's own.
  bool Release(const MempoolId_t& id);

  // The router calls it for every id. Returns true if the id is ours: then PyTorch's allocator must not hear of it.
  bool Begin(int device, const MempoolId_t& id, StreamFilter filter);
  bool End(int device, const MempoolId_t& id);

  // Returns the newest routing whose filter takes the calling thread and stream.
  Routing Innermost(int device, cudaStream_t stream) { return None() ? Routing{} : InnermostOpen(device, stream); }
  bool None() const { return open_count_.load(std::memory_order_relaxed) == 0; }

 private:
  struct Bound {
    MempoolId_t id;
    commpool_pool pool = 0;
    int device = 0;
    int users = 0;
  };
  struct Open {
    int device = 0;
    MempoolId_t id;
    StreamFilter filter;
    Routing routing;
  };
  Routing InnermostOpen(int device, cudaStream_t stream);
  Bound* Find(const MempoolId_t& id);  // the caller holds the mutex

  static inline thread_local commpool_pool next_bound_ = 0;
  std::mutex mutex_;
  std::vector<Bound> bound_;
  std::vector<Open> open_;
  std::atomic<int> open_count_{0};
};

inline constinit Forever<Routings> torch_routings;
inline Routings& TorchRoutings() { return torch_routings.object; }

}  // namespace commpool::torch_adapter

#endif  // COMMPOOL_SRC_ADAPTERS_TORCH_ROUTINGS_H_
