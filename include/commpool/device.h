// The memory of a device, beyond one pool: a limit on all of its pools, other allocators that can give back, and what
// NCCL takes for communicators.
//
//   commpool::set_device_limit(0, GiB(60)).or_throw();
//   HolderOptions options;
//   options.name = "framework";
//   options.release = [&](int device, std::uint64_t bytes) { return framework.give_back(device, bytes); };
//   MemoryHolder holder = MemoryHolder::add(options).value();   // asked when a device runs out, while it lives
#ifndef COMMPOOL_DEVICE_H_
#define COMMPOOL_DEVICE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "commpool/commpool.h"
#include "commpool/communicator.h"
#include "commpool/status.h"

namespace commpool {
inline namespace v1 {

// The most that all pools of a device may reserve together; UINT64_MAX for no limit. See COMMPOOL_DEVICE_LIMIT.
inline Status set_device_limit(int device, std::uint64_t bytes) {
  return detail::FromC(commpool_set_device_bound(device, COMMPOOL_DEVICE_LIMIT, bytes));
}

// What pools leave to others of a device's memory; 0 for nothing. See COMMPOOL_DEVICE_HEADROOM.
inline Status set_headroom(int device, std::uint64_t bytes) {
  return detail::FromC(commpool_set_device_bound(device, COMMPOOL_DEVICE_HEADROOM, bytes));
}

// The most that pools of a budget may reserve together on a device. See commpool_set_budget.
inline Status set_budget(const std::string& name, std::uint64_t bytes) {
  return detail::FromC(commpool_set_budget(name.c_str(), bytes));
}
struct BudgetUse {
  std::uint64_t reserved = 0;
  std::uint64_t peak = 0;
  std::uint64_t limit = UINT64_MAX;
};
// Of all pools of the device where the name is empty.
inline Result<BudgetUse> budget_use(int device, const std::string& name = {}) {
  BudgetUse use;
  const char* const budget = name.empty() ? nullptr : name.c_str();
  Status status = detail::FromC(commpool_budget_use(device, budget, &use.reserved, &use.peak, &use.limit));
  if (!status.ok()) return status;
  return use;
}

// For a call that ran out of memory: what pools release without a wait. See commpool_release_idle.
inline Result<std::uint64_t> release_idle(int device, commpool_device_work work = COMMPOOL_DEVICE_MAY_WORK) {
  std::uint64_t bytes = 0;
  Status status = detail::FromC(commpool_release_idle(device, work, &bytes));
  if (!status.ok()) return status;
  return bytes;
}

// NCCL's own memory of a communicator on this rank's device. See commpool_communicator_memory.
struct CommunicatorMemory {
  std::uint64_t bytes = 0;
  std::uint64_t sleeping_bytes = 0;  // the part that sleep gives back, or has given back
  bool asleep = false;
};
inline Result<CommunicatorMemory> communicator_memory(ncclComm* communicator) {
  CommunicatorMemory memory;
  int asleep = 0;
  Status status =
      detail::FromC(commpool_communicator_memory(communicator, &memory.bytes, &memory.sleeping_bytes, &asleep));
  if (!status.ok()) return status;
  memory.asleep = asleep != 0;
  return memory;
}
// Give it back, and make it again; COLLECTIVE over the communicator. See communicator.h.
inline Status sleep_communicator(ncclComm* communicator, std::uint64_t deadline_ms = 0) {
  return detail::FromC(commpool_communicator_sleep(communicator, deadline_ms));
}
inline Status wake_communicator(ncclComm* communicator) {
  return detail::FromC(commpool_communicator_wake(communicator));
}

// See commpool_holder_options. The functions run on an allocating thread and must not call commpool. One that throws
// counts as "holds nothing, gives nothing".
struct HolderOptions {
  std::string name = "other";                                                  // for the error's table
  std::function<std::uint64_t(int device)> cached_bytes = {};                  // empty: unknown
  std::function<std::uint64_t(int device, std::uint64_t bytes)> release = {};  // empty: it gives nothing
};

// Another allocator of the process. The library calls its functions while this object lives, and never after.
class [[nodiscard]] MemoryHolder {
 public:
  static Result<MemoryHolder> add(HolderOptions options) {
    auto functions = std::make_unique<HolderOptions>(std::move(options));
    commpool_holder_options c_options;
    commpool_holder_options_init(&c_options);
    c_options.name = functions->name.c_str();
    if (functions->cached_bytes) c_options.cached_bytes = CachedBytes;
    if (functions->release) c_options.release = Release;
    c_options.context = functions.get();
    commpool_holder holder = 0;
    Status status = detail::FromC(commpool_add_holder(&c_options, &holder));
    if (!status.ok()) return status;
    return MemoryHolder(holder, std::move(functions));
  }

  MemoryHolder(MemoryHolder&& other) noexcept
      : holder_(std::exchange(other.holder_, 0)), functions_(std::move(other.functions_)) {}
  MemoryHolder& operator=(MemoryHolder&& other) noexcept {
    std::swap(holder_, other.holder_);
    std::swap(functions_, other.functions_);
    return *this;
  }
  ~MemoryHolder() {
    // One of its own functions is running, so it cannot be removed: leak the functions rather than call dead ones.
    if (!remove().ok()) static_cast<void>(functions_.release());
  }

  // Ends it now and says what failed. Waits for calls of its functions.
  Status remove() {
    if (holder_ == 0) return Status();
    Status status = detail::FromC(commpool_remove_holder(holder_));
    if (status.ok()) holder_ = 0;
    return status;
  }

 private:
  MemoryHolder(commpool_holder holder, std::unique_ptr<HolderOptions> functions)
      : holder_(holder), functions_(std::move(functions)) {}

  static std::uint64_t CachedBytes(int device, void* context) {
    return detail::Catching([&] { return static_cast<HolderOptions*>(context)->cached_bytes(device); }, Nothing);
  }
  static std::uint64_t Release(int device, std::uint64_t bytes, void* context) {
    return detail::Catching([&] { return static_cast<HolderOptions*>(context)->release(device, bytes); }, Nothing);
  }
  static std::uint64_t Nothing() { return 0; }

  commpool_holder holder_ = 0;
  std::unique_ptr<HolderOptions> functions_;
};

}  // namespace v1
}  // namespace commpool

#endif  // COMMPOOL_DEVICE_H_
