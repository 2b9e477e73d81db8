#include "src/library/backing/backing_table.h"

#include <algorithm>
#include <utility>

#include "src/library/base/try.h"
#include "src/library/driver/device_info.h"

namespace commpool::internal {

namespace {

constexpr const BackingRow* kRows[] = {
#define COMMPOOL_BACKING(name, number) &k##name##Backing,
#include "src/library/backing/backings.inc"
#undef COMMPOOL_BACKING
};

// Options that exclude each other on every machine.
Status CheckPlacement(const BackingRow& row, const Placement& placement) {
  if (placement.kind == Placement::Kind::kHostNuma && row.places == Places::kDevice) {
    const auto makes_host_memory = [](const BackingRow& other) { return other.places != Places::kDevice; };
    return InvalidArgument("the ", row.name, " backing makes device memory only: a host NUMA location needs one of ",
                           NamesOfBackings(makes_host_memory));
  }
  if (placement.kind == Placement::Kind::kHostNuma && row.places == Places::kHost) {
    return InvalidArgument("the ", row.name,
                           " backing is host memory wherever its location says: leave "
                           "location as it is, and name a node by numa_node");
  }
  if (placement.numa_node < -1) {
    return InvalidArgument("there is no host NUMA node ", placement.numa_node, ": -1 means the nearest");
  }
  if (placement.kind == Placement::Kind::kDevice && placement.numa_node != -1 && row.places != Places::kHost) {
    return InvalidArgument("host NUMA node ", placement.numa_node, " was named for device memory");
  }
  return Status();
}

// Access for reading alone is a promise, which only memory keeps that is open to nobody but by the pool's own grants:
// the same memory whose access can be taken back. Which memory it is shows once it is made.
Status CheckGrants(const Backing& backing) {
  const Status revocable = backing.CanRevoke();
  if (backing.grants() == Grants::kReadWrite || revocable.ok()) return Status();
  return NotSupported("peers cannot be granted to read alone (grants READ) with the ", backing.name(),
                      " backing's memory of ", backing.Facts().what, ": ", revocable.message());
}

}  // namespace

std::span<const BackingRow* const> AllBackings() { return kRows; }

const BackingRow* FindBacking(int number) {
  const auto* const found = std::ranges::find(kRows, static_cast<BackingKind>(number), &BackingRow::kind);
  return found == std::end(kRows) ? nullptr : *found;
}

const BackingRow* FindBacking(std::string_view name) {
  const auto* const found = std::ranges::find(kRows, name, &BackingRow::name);
  return found == std::end(kRows) ? nullptr : *found;
}

std::string NamesOfBackings(bool (*fits)(const BackingRow& row)) {
  std::string names;
  for (const BackingRow* const row : kRows) {
    if (fits(*row)) names += (names.empty() ? "" : ", ") + std::string(row->name);
  }
  return names;
}

const char* Name(BackingKind kind) {
  const BackingRow* const row = FindBacking(kind);
  return row == nullptr ? "unknown" : row->name;
}

Result<std::unique_ptr<Backing>> MakeBacking(const Driver& driver, const BackingRequest& request) {
  Placement placement = request.placement;
  const BackingRow* const row = FindBacking(request.kind);
  if (row == nullptr) return NotSupported("there is no backing ", static_cast<int>(request.kind));
  const DeviceInfo info = COMMPOOL_TRY(DescribeDevice(driver, placement.device));
  COMMPOOL_TRY(CheckPlacement(*row, placement));
  if (row->places == Places::kHost) placement.kind = Placement::Kind::kHostNuma;
  if (row->can_make != nullptr) COMMPOOL_TRY(row->can_make(driver, info, placement));
  PrimaryContext retained = COMMPOOL_TRY(PrimaryContext::Retain(driver, placement.device));
  auto context = std::make_shared<DeviceContext>(std::move(retained));
  std::unique_ptr<Backing> made =
      COMMPOOL_TRY(row->make({driver, info, placement, std::move(context), request.grants}, request));
  COMMPOOL_TRY(CheckGrants(*made));
  return made;
}

}  // namespace commpool::internal
