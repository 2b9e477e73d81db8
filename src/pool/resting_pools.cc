#include "src/pool/resting_pools.h"

#include <utility>

#include "src/base/host_failure.h"
#include "src/base/host_patience.h"
#include "src/pool/pool.h"
#include "src/pool/symmetric/symmetric_mode.h"

namespace commpool::internal {

std::vector<std::shared_ptr<Pool>> RestingPools::RegisteredWith(const Communicator& communicator) const {
  std::vector<std::shared_ptr<Pool>> registered;
  for (const std::shared_ptr<Pool>& pool : pools_.All()) {
    if (pool->IsRegisteredWith(communicator.handle)) registered.push_back(pool);
  }
  return registered;
}

// What a pool without ranks has registered, captured collectives may hold: only the program knows. The ranks of a
// symmetric pool are those of its home: with another home some of them may not be here.
Status RestingPools::Check(const Communicator& communicator) const {
  for (const std::shared_ptr<Pool>& pool : Insist([&] { return RegisteredWith(communicator); })) {
    const SymmetricMode* const symmetric = pool->AsSymmetric();
    const char* why = nullptr;
    if (!pool->has_handle()) why = "was destroyed with live blocks";
    if (symmetric == nullptr) why = "is not symmetric";
    if (symmetric != nullptr && symmetric->home() != communicator.handle) why = "has another home";
    if (why == nullptr) continue;
    return Status(StatusCode::kFailedPrecondition, pool->title() + " is registered with the communicator and " + why +
                                                       ": sleep() that pool before, or deregister it");
  }
  return Status();
}

Status RestingPools::Rest(const Communicator& communicator) {
  resting_.clear();  // of a communicator that was aborted in its sleep, at the same address
  for (const std::shared_ptr<Pool>& pool : Insist([&] { return RegisteredWith(communicator); })) {
    Status status = Attempt([&] { return pool->Sleep({.keep = Keep::kInPlace}); });
    if (!status.ok()) return status;
    Insist([&] { resting_.push_back(pool->handle()); });
  }
  return Status();
}

Status RestingPools::Wake() {
  Status first;
  for (const PoolHandle handle : std::exchange(resting_, {})) {
    Result<std::shared_ptr<Pool>> pool = pools_.Find(handle);
    if (!pool.ok() || !(*pool)->resting()) continue;
    const Status status = Attempt([&] { return (*pool)->Wake(); });
    if (first.ok()) first = status;
  }
  return first;
}

}  // namespace commpool::internal
