#include "src/library/engine/block_table.h"

#include <utility>
#include <vector>

#include "src/library/base/check.h"

namespace commpool::internal::engine {

void BlockTable::Insert(Address address, Block* block) {
  if (2 * (count_ + 1) > entries_.size()) Grow();
  size_t place = HomeOf(address);
  while (entries_[place].block != nullptr) {
    COMMPOOL_CHECK(entries_[place].address != address, "two blocks begin at one address");
    place = Next(place);
  }
  entries_[place] = {address, block};
  ++count_;
}

void BlockTable::Erase(Address address) {
  size_t gap = HomeOf(address);
  while (entries_[gap].address != address || entries_[gap].block == nullptr) {
    COMMPOOL_CHECK(entries_[gap].block != nullptr, "no block begins at the address");
    gap = Next(gap);
  }
  // An entry that was pushed beyond its home moves into the gap, unless its home lies behind the gap.
  for (size_t place = Next(gap); entries_[place].block != nullptr; place = Next(place)) {
    const size_t mask = entries_.size() - 1;
    const size_t from_home = (place - HomeOf(entries_[place].address)) & mask;
    if (from_home < ((place - gap) & mask)) continue;
    entries_[gap] = entries_[place];
    gap = place;
  }
  entries_[gap] = Entry();
  --count_;
}

void BlockTable::Grow() {
  std::vector<Entry> old = std::exchange(entries_, std::vector<Entry>(2 * entries_.size()));
  --shift_;
  count_ = 0;
  for (const Entry& entry : old) {
    if (entry.block != nullptr) Insert(entry.address, entry.block);
  }
}

}  // namespace commpool::internal::engine
