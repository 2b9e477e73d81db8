// The table of backings: all there are, found by number or name. Constants: any thread.
#ifndef COMMPOOL_SRC_BACKING_BACKING_TABLE_H_
#define COMMPOOL_SRC_BACKING_BACKING_TABLE_H_

#include <span>
#include <string>
#include <string_view>

#include "src/backing/backing_row.h"

namespace commpool::internal {

// In the order in which they are listed to people: those that do most come first.
std::span<const BackingRow* const> AllBackings();

// Null where there is no such backing. `number` is one of commpool.h's COMMPOOL_BACKING_*.
const BackingRow* FindBacking(int number);
const BackingRow* FindBacking(std::string_view name);
inline const BackingRow* FindBacking(BackingKind kind) { return FindBacking(static_cast<int>(kind)); }

// "vmm, nccl": those that fit, in the table's order.
std::string NamesOfBackings(bool (*fits)(const BackingRow& row));

// "vmm"; "unknown" where there is no such backing.
const char* Name(BackingKind kind);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_BACKING_BACKING_TABLE_H_
