// The table of all backings: finds one by number or name, and makes one for a pool's request. Any thread.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "commpool/status.h"
#include "src/library/backing/backing.h"

namespace commpool::internal {

// All rows, in the order in which we list them to users: the backing with the most abilities first.
std::span<const BackingRow* const> AllBackings();

// Null where there is no such backing. `number` is one of commpool.h's COMMPOOL_BACKING_*.
const BackingRow* FindBacking(int number);
const BackingRow* FindBacking(std::string_view name);
inline const BackingRow* FindBacking(BackingKind kind) { return FindBacking(static_cast<int>(kind)); }

// Such as "vmm, nccl": those that fit, in the table's order.
std::string NamesOfBackings(bool (*fits)(const BackingRow& row));

// "vmm"; "unknown" where there is no such backing.
const char* Name(BackingKind kind);

// kInvalidArgument for a device or NUMA node that does not exist, for a host NUMA node with a backing of device memory,
// and for missing user functions. kNotSupported, with the reason, for what this driver, device or NCCL cannot do, and
// for Grants::kRead where the memory is open to others than those that the pool grants it to. The driver must outlive
// the backing and its segments.
Result<std::unique_ptr<Backing>> MakeBacking(const Driver& driver, const BackingRequest& request);

}  // namespace commpool::internal
