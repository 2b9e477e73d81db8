#include "src/backing/backing_table.h"

#include <algorithm>

namespace commpool::internal {

namespace {

constexpr const BackingRow* kRows[] = {
#define COMMPOOL_BACKING(name, number) &k##name##Backing,
#include "src/backing/backings.inc"
#undef COMMPOOL_BACKING
};

template <typename Predicate>
const BackingRow* FindRow(Predicate fits) {
  const auto* const found = std::find_if(std::begin(kRows), std::end(kRows), fits);
  return found == std::end(kRows) ? nullptr : *found;
}

}  // namespace

std::span<const BackingRow* const> AllBackings() { return kRows; }

const BackingRow* FindBacking(int number) {
  return FindRow([&](const BackingRow* row) { return static_cast<int>(row->kind) == number; });
}

const BackingRow* FindBacking(std::string_view name) {
  return FindRow([&](const BackingRow* row) { return row->name == name; });
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

}  // namespace commpool::internal
