// MemoryHolders: calls functions of the program, and lets none of them run once its holder was removed.
#include "src/library/pool/shared/memory_holders.h"

#include <algorithm>
#include <utility>

#include "src/library/base/failure.h"
#include "src/library/base/printable.h"
#include "src/library/base/user_function.h"

namespace commpool::internal {

namespace {

// So the calls that it makes are refused: each could ask the holders again, without an end, or wait for its own caller.
constexpr UserFunctionKind kCallback = {.name = "a free-memory callback", .may_free = true};

}  // namespace

// A number never comes back, so a late Remove removes no other holder.
commpool_holder MemoryHolders::Add(const commpool_holder_options& options) {
  auto holder = std::make_shared<Holder>();
  holder->name = options.name == nullptr ? "other" : Printable(options.name);
  holder->functions = options;
  holder->functions.name = nullptr;  // the program's string may be gone by the next call
  MutexLock lock(mutex_);
  holders_.emplace(next_, std::move(holder));
  return next_++;
}

// Out of the list first, so that nobody asks the holder again; then it waits for functions that run. After this the
// program may unload them.
Status MemoryHolders::Remove(commpool_holder handle) {
  MutexLock lock(mutex_);
  const auto found = holders_.find(handle);
  if (found == holders_.end()) return NotFound("free-memory callback ", handle, " was removed, or never added");
  const std::shared_ptr<Holder> holder = found->second;
  holder->removed = true;
  holders_.erase(found);
  while (holder->running != 0) ended_.Wait(mutex_);
  return Status();
}

// Takes the list out under the lock, and calls without it. `running` makes Remove wait for a function that runs.
template <typename Ask>
void MemoryHolders::ForEach(Ask ask) {
  std::vector<std::shared_ptr<Holder>> holders;
  {
    MutexLock lock(mutex_);
    for (const auto& [handle, holder] : holders_) holders.push_back(holder);
  }
  for (const std::shared_ptr<Holder>& holder : holders) {
    {
      MutexLock lock(mutex_);
      if (holder->removed) continue;
      ++holder->running;
    }
    bool more = true;
    try {
      const UserFunction running(kCallback);
      more = ask(*holder);
    } catch (...) {
      // A program's function that throws has given nothing; ask the others all the same.
    }
    {
      MutexLock lock(mutex_);
      --holder->running;
    }
    ended_.NotifyAll();
    if (!more) return;
  }
}

// In the order in which the program added them. Stops once enough has come back.
uint64_t MemoryHolders::Release(int device, uint64_t bytes) {
  uint64_t released = 0;
  ForEach([&](const Holder& holder) {
    const uint64_t missing = bytes - released;
    // Counts at most what was asked for.
    if (holder.functions.release != nullptr)
      released += std::min(missing, holder.functions.release(device, missing, holder.functions.context));
    return released < bytes;
  });
  return released;
}

// A holder that cannot tell gets a line too, with 0 bytes.
std::vector<MemoryHolders::Held> MemoryHolders::Describe(int device) {
  std::vector<Held> held;
  ForEach([&](const Holder& holder) {
    held.push_back({holder.name, 0});
    if (holder.functions.cached_bytes != nullptr)
      held.back().cached_bytes = holder.functions.cached_bytes(device, holder.functions.context);
    return true;
  });
  return held;
}

}  // namespace commpool::internal
