#include "src/library/registration/window_book.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "src/library/base/try.h"
#include "src/library/driver/handles.h"

namespace commpool::internal {

namespace {

// As the device has it; what follows is for networks.
struct RecordOnDevice {
  uint64_t host;
  WindowRecord::Fields fields;
};

// 0 where it is not known.
uint64_t RecordBytes(int version) {
  if (version == 22809) return 72;
  return version == 23007 ? 88 : 0;
}

// CUDA's pools give multiples of 512, and 64 records of these sizes are one: so an address tells the slot.
void FindPage(uint64_t record_bytes, WindowRecord* record) {
  constexpr uint64_t kAlignment = 512;
  record->page = reinterpret_cast<uint64_t>(record->window);
  while (record->page % kAlignment != 0 && record->slot < WindowLayout::kRecordsOfPage - 1) {
    record->page -= record_bytes;
    ++record->slot;
  }
}

}  // namespace

Result<std::optional<WindowRecord>> ReadWindowRecord(const Driver& driver, const Communicator& communicator,
                                                     ncclWindow_t window) {
  const uint64_t record_bytes = RecordBytes(driver.nccl.version);
  if (record_bytes == 0) return std::optional<WindowRecord>();
  RecordOnDevice read = {};
  CopyStream stream = COMMPOOL_TRY(CopyStream::Make(driver));
  COMMPOOL_TRY(stream.Copy(reinterpret_cast<CUdeviceptr>(&read), reinterpret_cast<CUdeviceptr>(window), sizeof read));
  COMMPOOL_TRY(stream.Await());
  const WindowRecord::Fields& fields = read.fields;
  const bool is_record = fields.rank == communicator.rank && fields.own_place >= 0 &&
                         fields.own_place < communicator.ranks && fields.stride_4g != 0;
  if (!is_record) return std::optional<WindowRecord>();
  WindowRecord record{.window = window, .fields = fields};
  FindPage(record_bytes, &record);
  return std::optional(record);
}

WindowSpot WindowBook::Windows::SpotOf(const WindowRecord& record) {
  auto page = std::find(pages.begin(), pages.end(), record.page);
  if (page == pages.end()) page = pages.insert(page, record.page);
  const auto number = static_cast<uint32_t>(page - pages.begin());
  return {record.offset(), static_cast<uint32_t>(number * WindowLayout::kRecordsOfPage + record.slot)};
}

const WindowBook::Window* WindowBook::WindowOf(ncclComm_t communicator, CUdeviceptr address) const {
  const auto known = communicators_.find(communicator);
  if (known == communicators_.end()) return nullptr;
  const auto window = known->second.by_address.find(address);
  return window == known->second.by_address.end() ? nullptr : &window->second;
}

void WindowBook::Add(const RegisteredWindow& window) {
  MutexLock lock(mutex_);
  Windows& windows = communicators_[window.communicator];
  Window added{window};
  if (window.record) {
    added.spot = windows.SpotOf(*window.record);
    windows.layout.Learn(window.bytes, added.spot);
  }
  windows.by_address.insert_or_assign(window.address, added);
}

void WindowBook::Remove(ncclComm_t communicator, CUdeviceptr address) {
  MutexLock lock(mutex_);
  const Window* const window = WindowOf(communicator, address);
  if (window == nullptr) return;
  Windows& windows = communicators_.at(communicator);
  if (window->record) windows.layout.Remove(window->spot);
  windows.by_address.erase(address);
  if (windows.by_address.empty()) communicators_.erase(communicator);
}

std::optional<WindowPlace> WindowBook::Find(ncclComm_t communicator, CUdeviceptr address) const {
  MutexLock lock(mutex_);
  const auto known = communicators_.find(communicator);
  if (known == communicators_.end()) return std::nullopt;
  const auto next = known->second.by_address.upper_bound(address);
  if (next == known->second.by_address.begin()) return std::nullopt;
  const auto& [begin, window] = *std::prev(next);
  const uint64_t offset = address - begin;
  return offset < window.bytes ? std::optional(WindowPlace{window.window, offset}) : std::nullopt;
}

std::optional<WindowRecord> WindowBook::RecordOf(ncclComm_t communicator, CUdeviceptr address) const {
  MutexLock lock(mutex_);
  const Window* const window = WindowOf(communicator, address);
  return window == nullptr ? std::nullopt : window->record;
}

Result<std::vector<WindowStep>> WindowBook::FindReturn(ncclComm_t communicator,
                                                       const std::vector<CUdeviceptr>& addresses) const {
  if (addresses.empty()) return std::vector<WindowStep>();
  std::vector<PlacedWindow> windows;
  std::optional<WindowLayout> layout;
  {
    MutexLock lock(mutex_);
    for (const CUdeviceptr address : addresses) {
      const Window* const window = WindowOf(communicator, address);
      if (window == nullptr || !window->record)
        return FailedPrecondition("nobody knows where NCCL has placed a window");
      if (!layout) layout = communicators_.at(communicator).layout;
      if (!window->record->all_reach()) return FailedPrecondition("proxies of NCCL hold windows for the network");
      windows.push_back({window->bytes, window->spot});
      layout->Remove(window->spot);
    }
  }
  std::optional<std::vector<WindowStep>> steps = FindWindowOrder(*layout, windows);
  if (!steps) return FailedPrecondition("no order of registering brings all windows back");
  return std::move(*steps);
}

}  // namespace commpool::internal
