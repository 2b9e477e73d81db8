#include "src/interpose/audit/physical_book.h"

#include <iterator>

namespace commpool::audit {

PhysicalId PhysicalBook::Make(uint64_t handle) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const PhysicalId physical = ++last_;
  uses_[physical].handles = 1;
  handles_[handle] = {physical, 1};
  return physical;
}

void PhysicalBook::Retain(uint64_t handle, uint64_t address) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto after = mapped_.upper_bound(address);
  if (after == mapped_.begin()) return;
  const MappedPart& part = std::prev(after)->second;
  if (address >= part.address + part.bytes || part.physical == kNoPhysical) return;
  Named& named = handles_[handle];
  if (named.physical != part.physical) named = {part.physical, 0};
  ++named.uses;
  ++uses_[part.physical].handles;
}

void PhysicalBook::Map(uint64_t address, uint64_t bytes, uint64_t handle) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto named = handles_.find(handle);
  const PhysicalId physical = named == handles_.end() ? kNoPhysical : named->second.physical;
  mapped_[address] = {address, bytes, physical};
  if (physical != kNoPhysical) ++uses_[physical].mappings;
}

PhysicalId PhysicalBook::TakeHandle(uint64_t handle) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto named = handles_.find(handle);
  if (named == handles_.end()) return kNoPhysical;
  const PhysicalId physical = named->second.physical;
  if (--named->second.uses == 0) handles_.erase(named);
  return physical;
}

void PhysicalBook::PutBackHandle(uint64_t handle, PhysicalId physical) {
  if (physical == kNoPhysical) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  Named& named = handles_[handle];
  named.physical = physical;
  ++named.uses;
}

std::vector<MappedPart> PhysicalBook::TakeMapped(uint64_t address, uint64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<MappedPart> parts;
  auto next = mapped_.lower_bound(address);
  while (next != mapped_.end() && next->second.address + next->second.bytes <= address + bytes) {
    parts.push_back(next->second);
    next = mapped_.erase(next);
  }
  return parts;
}

void PhysicalBook::PutBackMapped(const std::vector<MappedPart>& parts) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const MappedPart& part : parts) mapped_[part.address] = part;
}

bool PhysicalBook::DropHandle(PhysicalId physical) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = uses_.find(physical);
  if (found == uses_.end()) return false;
  --found->second.handles;
  return IsGone(physical);
}

bool PhysicalBook::DropMapped(PhysicalId physical) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = uses_.find(physical);
  if (found == uses_.end()) return false;
  --found->second.mappings;
  return IsGone(physical);
}

bool PhysicalBook::IsGone(PhysicalId physical) {
  const Uses& uses = uses_[physical];
  if (uses.handles != 0 || uses.mappings != 0) return false;
  uses_.erase(physical);
  return true;
}

}  // namespace commpool::audit
