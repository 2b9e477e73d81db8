#include "src/pool/resting_pools.h"

#include <algorithm>
#include <utility>

#include "src/pool/pool.h"
#include "src/pool/symmetric/symmetric_mode.h"

namespace commpool::internal {

namespace {

// With its number in home: names may repeat.
std::string NamesOf(const std::vector<std::shared_ptr<Pool>>& pools) {
  std::string names;
  for (const std::shared_ptr<Pool>& pool : pools) {
    const SymmetricMode* const symmetric = pool->AsSymmetric();
    const uint64_t number = symmetric != nullptr ? symmetric->place().channel : 0;
    names += (names.empty() ? "" : ", ") + pool->name() + " (" + std::to_string(number) + " of home)";
  }
  return names.empty() ? "none" : names;
}

}  // namespace

RestingPools::Pools RestingPools::RegisteredWith(const Communicator& communicator) const {
  Pools registered;
  for (const std::shared_ptr<Pool>& pool : pools_.All()) {
    if (pool->IsRegisteredWith(communicator.handle)) registered.push_back(pool);
  }
  std::reverse(registered.begin(), registered.end());
  return registered;
}

RestingPools::Pools RestingPools::Resting() const {
  Pools resting;
  for (const PoolHandle handle : resting_) {
    const Result<std::shared_ptr<Pool>> pool = pools_.Find(handle);
    if (pool.ok() && (*pool)->resting()) resting.push_back(*pool);
  }
  return resting;
}

std::string RestingPools::NamesFor(const Communicator& communicator) const {
  return NamesOf(RegisteredWith(communicator));
}

std::string RestingPools::NamesOfResting() const { return NamesOf(Resting()); }

// What a pool without ranks has registered, captured collectives may hold: only the program knows. The ranks of a
// symmetric pool are those of its home: with another home some of them may not be here.
Status RestingPools::Check(const Communicator& communicator) const {
  for (const std::shared_ptr<Pool>& pool : RegisteredWith(communicator)) {
    const SymmetricMode* const symmetric = pool->AsSymmetric();
    const char* why = nullptr;
    const char* advice = ": sleep() that pool before, or deregister it";
    if (pool->group() != nullptr) why = "was made for several ranks by one thread";
    if (symmetric == nullptr) why = "is not symmetric";
    if (symmetric != nullptr && symmetric->home() != communicator.handle) why = "has another home";
    if (!pool->has_handle()) {
      why = "was destroyed without close()";
      advice = ": abort the communicator instead";
    }
    if (why == nullptr) continue;
    return Status(StatusCode::kFailedPrecondition,
                  pool->title() + " is registered with the communicator and " + why + advice);
  }
  return Status();
}

Status RestingPools::Rest(const Communicator& communicator) {
  resting_.clear();  // of a communicator that was aborted in its sleep, at the same address
  for (const std::shared_ptr<Pool>& pool : RegisteredWith(communicator)) {
    Status status = pool->Sleep({.memory = Memory::kStays});
    if (!status.ok()) return status;
    resting_.insert(resting_.begin(), pool->handle());
  }
  return Status();
}

Status RestingPools::Wake() {
  Status first;
  for (const std::shared_ptr<Pool>& pool : Resting()) {
    const Status status = pool->Wake();
    if (first.ok()) first = status;
  }
  resting_.clear();
  return first;
}

}  // namespace commpool::internal
