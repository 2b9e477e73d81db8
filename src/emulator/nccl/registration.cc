#include "src/emulator/nccl/registration.h"

#include <algorithm>
#include <utility>

namespace commpool::internal::emulated_nccl {

namespace {

constexpr uintptr_t kPageBytes = 4096;

}  // namespace

RegistrationCache::Added RegistrationCache::Add(const void* buffer, size_t bytes) {
  const auto address = reinterpret_cast<uintptr_t>(buffer);
  const uintptr_t begin = address / kPageBytes * kPageBytes;
  const uintptr_t end = (address + bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  auto place = slots_.begin();
  for (; place != slots_.end() && begin >= (*place)->begin; ++place) {
    if ((*place)->end < end) continue;
    ++(*place)->references;
    return {place->get(), false};
  }
  auto slot = std::make_unique<LocalRegistration>();
  slot->begin = begin;
  slot->end = end;
  slot->buffer = address;
  slot->bytes = bytes;
  slot->references = 1;
  return {slots_.insert(place, std::move(slot))->get(), true};
}

LocalRegistration* RegistrationCache::Find(const void* buffer, size_t bytes) const {
  const auto address = reinterpret_cast<uintptr_t>(buffer);
  for (const auto& slot : slots_) {
    if (slot->begin <= address && address + bytes <= slot->end) return slot.get();
  }
  return nullptr;
}

bool RegistrationCache::Holds(const LocalRegistration* slot) const {
  return std::any_of(slots_.begin(), slots_.end(), [&](const auto& held) { return held.get() == slot; });
}

std::unique_ptr<LocalRegistration> RegistrationCache::Release(LocalRegistration* slot) {
  if (--slot->references > 0) return nullptr;
  const auto place = std::find_if(slots_.begin(), slots_.end(), [&](const auto& held) { return held.get() == slot; });
  std::unique_ptr<LocalRegistration> removed = std::move(*place);
  slots_.erase(place);
  return removed;
}

EmulatedWindow* CommunicatorWindows::Add(const EmulatedWindow& window) {
  EmulatedWindow* const record = &(records_[window.place.record] = window);
  windows_.push_back(record);
  return record;
}

const EmulatedWindow* CommunicatorWindows::Find(const void* buffer) const {
  const auto address = reinterpret_cast<uintptr_t>(buffer);
  for (const EmulatedWindow* window : windows_) {
    if (window->buffer <= address && address < window->buffer + window->bytes) return window;
  }
  return nullptr;
}

const EmulatedWindow* CommunicatorWindows::FindPhysical(uint64_t physical) const {
  for (const EmulatedWindow* window : windows_) {
    if (window->physical == physical) return window;
  }
  return nullptr;
}

const EmulatedWindow* CommunicatorWindows::MappedAt(uint64_t offset) const {
  for (const EmulatedWindow* window : windows_) {
    if (window->place.offset <= offset && offset < window->place.offset + window->place.bytes) return window;
  }
  return nullptr;
}

const EmulatedWindow* CommunicatorWindows::OfHandle(ncclWindow_t handle) const {
  for (const EmulatedWindow* window : windows_) {
    if (window->handle == handle) return window;
  }
  return nullptr;
}

void CommunicatorWindows::Remove(const EmulatedWindow* window) { std::erase(windows_, window); }

}  // namespace commpool::internal::emulated_nccl
