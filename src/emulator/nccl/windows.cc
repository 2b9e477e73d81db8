// The part of a communicator that registers buffers: locally, and as windows together with the other ranks.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "src/emulator/nccl/collective_times.h"
#include "src/emulator/nccl/communicator.h"
#include "src/emulator/nccl/exchange.h"
#include "src/emulator/nccl/log.h"
#include "src/emulator/nccl/releases.h"

namespace commpool::internal::emulated_nccl {

// What each rank tells the others about its part of a window.
struct EmulatedCommunicator::WindowMessage {
  uint64_t number = 0;
  uint64_t bytes = 0;   // of the whole mapping, which is registered
  uint64_t offset = 0;  // of the buffer in the mapping
  int64_t flags = 0;
  double now_us = 0;
  uint64_t multicast = 0;  // 1: the memory can be bound to a multicast object
};

namespace {

bool LocalRegistrationOff() { return IsSwitchedOff("NCCL_LOCAL_REGISTER"); }

bool OnHost(const commpoolEmulatorMapping& mapping) { return mapping.location_type != CU_MEM_LOCATION_TYPE_DEVICE; }

}  // namespace

LocalRegistration* EmulatedCommunicator::AddLocal(void* buffer, size_t bytes) {
  const DriverFunctions& driver = GetDriver();
  LogInfo(Subject::kRegistration, "register comm %p buffer %p size %zi", static_cast<void*>(this), buffer, bytes);
  const RegistrationCache::Added added = registrations_.Add(buffer, bytes);
  if (added.created) {
    const std::string holder = "registration of rank " + std::to_string(rank_);
    driver.commpoolEmulatorHold(reinterpret_cast<CUdeviceptr>(buffer), bytes, holder.c_str());
    const std::string description = holder + ", " + std::to_string(bytes) + " bytes";
    driver.commpoolEmulatorNoteResource("NCCL registration", added.slot, description.c_str());
  }
  return added.slot;
}

void EmulatedCommunicator::DropLocal(LocalRegistration* slot) {
  const std::unique_ptr<LocalRegistration> removed = registrations_.Release(slot);
  if (removed == nullptr) return;
  GetDriver().commpoolEmulatorUnhold(removed->buffer, removed->bytes);
  GetDriver().commpoolEmulatorNoteNvls(removed->buffer, 0, nullptr);
  GetDriver().commpoolEmulatorForgetResource("NCCL registration", removed.get());
}

ncclResult_t EmulatedCommunicator::RegisterLocal(void* buffer, size_t bytes, void** handle) {
  if (LocalRegistrationOff()) {
    *handle = nullptr;
    LogInfo(Subject::kRegistration,
            "Skipping registration for buffer %p size %zi (LocalRegister=%ld, P2pUsesMemcpy=%d)", buffer, bytes, 0l, 0);
    return ncclSuccess;
  }
  commpoolEmulatorMapping mapping = {};
  const auto address = reinterpret_cast<CUdeviceptr>(buffer);
  if (bytes == 0 || GetDriver().commpoolEmulatorFindMapping(address, &mapping) != CUDA_SUCCESS) {
    COMMPOOL_NCCL_WARN("rank %d: buffer %p (%zu bytes) cannot be registered: not device memory", rank_, buffer, bytes);
    return ncclInvalidArgument;
  }
  // 2.30 returns success for CPU memory and does not set the handle (src/register/register.cc).
  if (OnHost(mapping) && ClaimedVersion() >= kFirstWithHostWindows) {
    LogInfo(Subject::kRegistration,
            "Skipping registration for buffer %p size %zi since it contains segments backed by CPU memory", buffer,
            bytes);
    return ncclSuccess;
  }
  const std::lock_guard lock(registering_);
  *handle = AddLocal(buffer, bytes);
  const std::string why_not = WhyNoMulticastOfLocal(buffer, bytes, mapping);
  GetDriver().commpoolEmulatorNoteNvls(address, bytes, why_not.c_str());
  GetDriver().commpoolEmulatorAdvance(kLocalRegistrationMicroseconds);
  return ncclSuccess;
}

ncclResult_t EmulatedCommunicator::DeregisterLocal(void* handle) {
  if (handle == nullptr) return ncclSuccess;
  const std::lock_guard lock(registering_);
  auto* slot = static_cast<LocalRegistration*>(handle);
  if (!registrations_.Holds(slot)) {
    COMMPOOL_NCCL_WARN("Deregister: Could not find handle");
    return ncclInvalidUsage;
  }
  DropLocal(slot);
  return ncclSuccess;
}

ncclResult_t EmulatedCommunicator::CheckWindow(void* buffer, size_t bytes, commpoolEmulatorMapping* mapping) const {
  const auto address = reinterpret_cast<CUdeviceptr>(buffer);
  const std::string rank = "rank " + std::to_string(rank_) + ": ";
  if (bytes == 0 || GetDriver().commpoolEmulatorFindMapping(address, mapping) != CUDA_SUCCESS) {
    COMMPOOL_NCCL_WARN("%swindow buffer %p (%zu bytes) is not device memory", rank.c_str(), buffer, bytes);
    return ncclInvalidArgument;
  }
  if (mapping->physical == 0) {
    COMMPOOL_NCCL_WARN("%swindow buffer %p has no cuMem handle: cudaMalloc memory cannot be a window", rank.c_str(),
                       buffer);
    return ncclInvalidArgument;
  }
  // NCCL's user guide: host memory is refused before 2.30.3. Later releases still refuse HOST (but not HOST_NUMA).
  const bool host_numa = mapping->location_type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
  if (OnHost(*mapping) && !(host_numa && ClaimedVersion() >= kFirstWithHostWindows)) {
    COMMPOOL_NCCL_WARN("%swindow buffer %p is host memory", rank.c_str(), buffer);
    return ncclInvalidArgument;
  }
  // NCCL_WIN_REQUIRED_ALIGNMENT of nccl.h applies to the offset in the physical handle (src/dev_runtime.cc).
  if ((address - mapping->base) % NCCL_WIN_REQUIRED_ALIGNMENT != 0) {
    COMMPOOL_NCCL_WARN("Window address must be suitably aligned.");
    return ncclInvalidArgument;
  }
  if (const ncclResult_t result = CheckExtent(address, bytes, mapping); result != ncclSuccess) return result;
  const std::lock_guard lock(registering_);
  // This is undefined in host collectives, and uses up addresses from 2.30 on (user guide; NVIDIA/nccl#2331).
  if (mapping->physical != 0 && windows_.FindPhysical(mapping->physical) != nullptr) {
    GetDriver().commpoolEmulatorReport("physical memory is registered as a window twice",
                                       (rank + std::to_string(bytes) + " bytes").c_str());
  }
  return ncclSuccess;
}

// Before 2.30.3 a window is one physical handle; later it may be several in a row (NVIDIA/nccl#1820; release notes).
ncclResult_t EmulatedCommunicator::CheckExtent(uintptr_t address, size_t bytes,
                                               commpoolEmulatorMapping* mapping) const {
  const std::string rank = "rank " + std::to_string(rank_) + ": ";
  while (address + bytes > mapping->base + mapping->bytes) {
    commpoolEmulatorMapping next = {};
    const bool joins = ClaimedVersion() >= kFirstWithSegmentedWindows &&
                       GetDriver().commpoolEmulatorFindMapping(mapping->base + mapping->bytes, &next) == CUDA_SUCCESS &&
                       next.physical != 0 && next.location_type == mapping->location_type;
    if (!joins) {
      // 2.28.9 does not check this. Memory after the first handle is not in the window (src/dev_runtime.cc).
      GetDriver().commpoolEmulatorReport(
          "window is larger than its physical handle",
          (rank + std::to_string(bytes) + " bytes asked, the handle holds " + std::to_string(mapping->bytes)).c_str());
      return ncclInvalidArgument;
    }
    mapping->bytes += next.bytes;
    mapping->physical = 0;  // the window has no single handle
  }
  return ncclSuccess;
}

// NCCL 2.28.9, src/dev_runtime.cc: the call is collective over the communicator. The order must be equal on all ranks,
// and before 2.30.7 the sizes too.
ncclResult_t EmulatedCommunicator::AgreeOnWindow(const WindowMessage& own, AgreedWindow* agreed) {
  Message message(sizeof own);
  std::memcpy(message.data(), &own, sizeof own);
  const char* const call = "ncclCommWindowRegister";
  const Result<std::vector<Message>> messages = ExchangeControl(call, AllRanks(), message);
  if (!messages.ok()) return FailControl(call, messages.status());
  double latest_us = own.now_us;
  for (int peer = 0; peer < ranks_; ++peer) {
    WindowMessage other;
    const Message& bytes = (*messages)[static_cast<size_t>(peer)];
    std::memcpy(&other, bytes.data(), std::min(bytes.size(), sizeof other));
    latest_us = std::max(latest_us, other.now_us);
    agreed->largest_bytes = std::max(agreed->largest_bytes, other.bytes);
    if (other.multicast == 0) agreed->why_no_multicast = "not on rank " + std::to_string(peer);
    const bool sizes_matter = ClaimedVersion() < kFirstWithUnequalWindows;
    const bool same_size = other.bytes == own.bytes && other.offset == own.offset;
    if (other.number == own.number && other.flags == own.flags && (same_size || !sizes_matter)) continue;
    const std::string details = "rank " + std::to_string(rank_) + ": window " + std::to_string(own.number) + ", " +
                                std::to_string(own.bytes) + " bytes, offset " + std::to_string(own.offset) + "; rank " +
                                std::to_string(peer) + ": window " + std::to_string(other.number) + ", " +
                                std::to_string(other.bytes) + " bytes, offset " + std::to_string(other.offset);
    GetDriver().commpoolEmulatorReport("windows differ between ranks", details.c_str());
    COMMPOOL_NCCL_WARN("windows differ between ranks (%s)", details.c_str());
    return ncclInvalidUsage;
  }
  GetDriver().commpoolEmulatorAdvance(latest_us - own.now_us + kWindowRegistrationMicroseconds);
  return ncclSuccess;
}

void EmulatedCommunicator::WantWindow(const WantedWindow& wanted) {
  const std::lock_guard lock(registering_);
  wanted_windows_.push_back(wanted);
}

// NCCL 2.28.3 to 2.30.7, src/group.cc: after a failure, requests stay in the communicator's queue, and the next
// registration carries them out.
ncclResult_t EmulatedCommunicator::MakeWindows() {
  for (;;) {
    WantedWindow wanted;
    {
      const std::lock_guard lock(registering_);
      if (wanted_windows_.empty()) return ncclSuccess;
      wanted = wanted_windows_.front();
      wanted_windows_.pop_front();
    }
    if (const ncclResult_t result = RegisterWindow(wanted); result != ncclSuccess) return result;
  }
}

ncclResult_t EmulatedCommunicator::RegisterWindow(const WantedWindow& wanted) {
  const auto& [buffer, bytes, flags, window] = wanted;
  if (stopped_.load()) return ncclInvalidUsage;
  if (async_error() != ncclSuccess) return async_error();
  if (const ncclResult_t result = CheckAwake("ncclCommWindowRegister"); result != ncclSuccess) return result;
  if (window_support_ == WindowSupport::kNullWindow) {
    *window = nullptr;
    return ncclSuccess;
  }
  if (window_support_ == WindowSupport::kLocalHandle) {
    // With NCCL_LOCAL_REGISTER=0, NCCL does not write the handle (src/dev_runtime.cc).
    if (LocalRegistrationOff()) return ncclSuccess;
    void* handle = nullptr;
    const ncclResult_t result = RegisterLocal(buffer, bytes, &handle);
    if (result == ncclSuccess) *window = static_cast<ncclWindow_t>(handle);
    return result;
  }
  *window = nullptr;
  commpoolEmulatorMapping mapping = {};
  if (const ncclResult_t result = CheckWindow(buffer, bytes, &mapping); result != ncclSuccess) return result;
  const auto address = reinterpret_cast<uintptr_t>(buffer);
  const std::string own_reason = WhyNoMulticast(mapping);
  const WindowMessage own{.number = ++window_calls_,
                          .bytes = mapping.bytes,
                          .offset = address - mapping.base,
                          .flags = flags,
                          .now_us = GetDriver().commpoolEmulatorNow(),
                          .multicast = own_reason.empty() ? 1u : 0u};
  AgreedWindow agreed;
  if (const ncclResult_t result = AgreeOnWindow(own, &agreed); result != ncclSuccess) return result;
  const std::lock_guard lock(registering_);
  const std::optional<WindowPlaceInRange> place = TakePlace(agreed.largest_bytes, flags);
  if (!place) {
    COMMPOOL_NCCL_WARN("Allocation failed. No suitable space found to accommodate size=0x%lx", agreed.largest_bytes);
    return ncclInternalError;
  }
  EmulatedWindow* added = windows_.Add({.number = own.number,
                                        .buffer = address,
                                        .bytes = bytes,
                                        .flags = flags,
                                        .local = LocalRegistrationOff() ? nullptr : AddLocal(buffer, bytes),
                                        .mapping = mapping.base,
                                        .mapping_bytes = mapping.bytes,
                                        .physical = mapping.physical,
                                        .on_device = !OnHost(mapping),
                                        .place = *place});
  added->handle = WriteRecord(*added);
  const std::string holder = "window " + std::to_string(own.number) + " of rank " + std::to_string(rank_);
  GetDriver().commpoolEmulatorHold(mapping.base, mapping.bytes, holder.c_str());
  GetDriver().commpoolEmulatorNoteResource("NCCL window", added, holder.c_str());
  BindMulticast(*added, own_reason.empty() ? agreed.why_no_multicast : own_reason);
  *window = added->handle;
  return ncclSuccess;
}

// NCCL 2.28.9 and 2.30.7, src/dev_runtime.cc: the range is as large as the device's memory, in units of 4 GiB.
WindowPlaces EmulatedCommunicator::PlacesOn(int device) {
  constexpr uint64_t kRangeUnit = uint64_t{4} << 30;
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
  size_t memory = 0;
  size_t granularity = 1;
  GetDriver().cuDeviceTotalMem(&memory, device);
  GetDriver().cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
  return {(memory + kRangeUnit - 1) / kRangeUnit * kRangeUnit, granularity};
}

// NCCL makes a window of its own before the first symmetric one (ncclSymkInitOnce). The emulator chose its size.
std::optional<WindowPlaceInRange> EmulatedCommunicator::TakePlace(size_t bytes, int flags) {
  const bool first = (flags & NCCL_WIN_COLL_SYMMETRIC) != 0 && !std::exchange(has_own_window_, true);
  if (first && !places_.Take(places_.granularity())) return std::nullopt;
  return places_.Take(bytes);
}

// NCCL 2.28.9, src/ce_coll.cc: before the first copies NCCL makes a window for what ranks tell each other then. The
// emulator chose its size.
void EmulatedCommunicator::TakePlaceOfCopies() {
  const std::lock_guard lock(registering_);
  if (!std::exchange(has_copies_window_, true)) static_cast<void>(places_.Take(places_.granularity()));
}

// Nothing is mapped at the addresses that the record names. Ranks that the network joins reach those of their own host.
ncclWindow_t EmulatedCommunicator::WriteRecord(const EmulatedWindow& window) {
  constexpr uint64_t kRange = uint64_t{1} << 46;
  const uint64_t host = peers_[static_cast<size_t>(rank_)].host;
  const auto reached = [&](const PeerInfo& peer) { return all_direct_ || peer.host == host; };
  const auto own_place = std::count_if(peers_.begin(), peers_.begin() + rank_, reached);
  return records_.Write(window.place.record, {.host = &window,
                                              .first_rank = kRange + window.place.offset,
                                              .own_place = static_cast<int32_t>(own_place),
                                              .rank = rank_,
                                              .stride_4g = static_cast<uint32_t>(places_.range_bytes() >> 32),
                                              .place_4k = static_cast<uint32_t>(window.PlaceOf(0) >> 12)});
}

std::string EmulatedCommunicator::WhyStale(const char* name, const PlaceInWindow& place, uint64_t offset,
                                           const void* buffer) const {
  const EmulatedWindow* mapped = windows_.MappedAt(offset);
  const uintptr_t found = mapped == nullptr ? 0 : mapped->mapping + (offset - mapped->place.offset);
  if (found == reinterpret_cast<uintptr_t>(buffer)) return "";
  return std::string(name) + ", window " + std::to_string(place.window) + " + " + std::to_string(place.offset) + ": " +
         (mapped == nullptr ? "nothing is mapped" : "other memory is") + " at its place";
}

// A graph keeps a window's record and an offset, and a kernel goes by both. Later the record may describe another
// window, and other memory may be at that place. Of copies a graph keeps addresses: where the receive buffer is on each
// rank, and where the program has its own send buffer.
std::string EmulatedCommunicator::WhyStale(const CollectivePlan& plan, const CollectiveRequest& request) const {
  if (plan.route == Route::kBuffers) return "";
  const std::lock_guard lock(registering_);
  if (plan.route == Route::kCopyEngines) {
    return WhyStale("recvbuff", plan.receive, plan.receive.in_range, request.receive);
  }
  const auto now_at = [&](const PlaceInWindow& place) {
    return windows_.Record(static_cast<uint32_t>(place.window)).PlaceOf(place.offset);
  };
  std::string reason = WhyStale("sendbuff", plan.send, now_at(plan.send), request.send);
  return reason.empty() ? WhyStale("recvbuff", plan.receive, now_at(plan.receive), request.receive) : reason;
}

// NCCL 2.28.9, src/dev_runtime.cc: the call is local and has no barrier. The other ranks keep their imports of this
// rank's memory.
ncclResult_t EmulatedCommunicator::DeregisterWindow(ncclWindow_t window) {
  if (window == nullptr) return ncclSuccess;
  if (window_support_ == WindowSupport::kLocalHandle) return DeregisterLocal(window);
  const std::lock_guard lock(registering_);
  const EmulatedWindow* const found = windows_.OfHandle(window);
  if (found == nullptr) {
    COMMPOOL_NCCL_WARN("rank %d: no window %p", rank_, static_cast<void*>(window));
    return ncclInvalidArgument;
  }
  windows_.Remove(found);
  places_.Free(found->place);
  GetDriver().commpoolEmulatorUnhold(found->mapping, found->mapping_bytes);
  GetDriver().commpoolEmulatorForgetResource("NCCL window", found);
  UnbindMulticast(*found);
  if (found->local != nullptr) DropLocal(found->local);
  GetDriver().commpoolEmulatorAdvance(kWindowDeregistrationMicroseconds);
  return ncclSuccess;
}

ncclResult_t EmulatedCommunicator::FindWindow(ncclWindow_t window, void** buffer) {
  const std::lock_guard lock(registering_);
  const EmulatedWindow* const found = windows_.OfHandle(window);
  if (found == nullptr) return ncclInvalidArgument;
  *buffer = reinterpret_cast<void*>(found->buffer);
  return ncclSuccess;
}

// NCCL 2.28.9 on H200s: if a communicator is aborted, the memory of its windows never comes back, even when its owner
// unmaps and releases it.
void EmulatedCommunicator::KeepMemoryOfWindows() const {
  if (ClaimedVersion() >= kFirstThatDropsWindows) return;
  for (const auto& window : windows_.windows()) {
    CUmemGenericAllocationHandle kept = 0;
    GetDriver().cuMemRetainAllocationHandle(&kept, reinterpret_cast<void*>(window->mapping));
  }
}

void EmulatedCommunicator::DropRegistrations() {
  const std::lock_guard lock(registering_);
  const DriverFunctions& driver = GetDriver();
  for (const auto& window : windows_.windows()) {
    driver.commpoolEmulatorUnhold(window->mapping, window->mapping_bytes);
    driver.commpoolEmulatorForgetResource("NCCL window", window);
    UnbindMulticast(*window);
  }
  windows_.Clear();
  for (const auto& slot : registrations_.slots()) {
    driver.commpoolEmulatorUnhold(slot->buffer, slot->bytes);
    driver.commpoolEmulatorNoteNvls(slot->buffer, 0, nullptr);
    driver.commpoolEmulatorForgetResource("NCCL registration", slot.get());
  }
  registrations_.Clear();
}

}  // namespace commpool::internal::emulated_nccl
