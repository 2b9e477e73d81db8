#include "src/registration/placed_windows.h"

#include <algorithm>
#include <utility>

#include "src/base/bytes.h"
#include "src/base/host_failure.h"

namespace commpool::internal {

namespace {

constexpr uint64_t kRecordsOfPage = 64;
constexpr uint64_t kGranularity = 2 * kMiB;  // of the memory of all GPUs that have windows

Status NoReturn(const char* why) { return Status(StatusCode::kFailedPrecondition, why); }

}  // namespace

WindowSpot PlacedWindows::Placed::SpotOf(const WindowRecord& record) {
  auto page = std::find(pages.begin(), pages.end(), record.page);
  if (page == pages.end()) page = pages.insert(page, record.page);
  const auto number = static_cast<uint32_t>(page - pages.begin());
  return {record.offset(), static_cast<uint32_t>(number * kRecordsOfPage + record.slot)};
}

const PlacedWindows::Window* PlacedWindows::Placed::Find(CUdeviceptr address) const {
  const auto window = windows.find(address);
  return window == windows.end() ? nullptr : &window->second;
}

void PlacedWindows::Add(ncclComm_t communicator, CUdeviceptr address, uint64_t bytes, const WindowRecord& record) {
  MutexLock lock(mutex_);
  const auto known = communicators_.find(communicator);
  Placed placed = known == communicators_.end() ? Placed{WindowLayout(kGranularity)} : known->second;
  const WindowSpot spot = placed.SpotOf(record);
  placed.layout.Learn(bytes, spot);
  placed.windows.insert_or_assign(address, Window{bytes, spot, record});
  communicators_.insert_or_assign(communicator, std::move(placed));
}

void PlacedWindows::Remove(ncclComm_t communicator, CUdeviceptr address) {
  MutexLock lock(mutex_);
  const auto known = communicators_.find(communicator);
  if (known == communicators_.end()) return;
  const auto window = known->second.windows.find(address);
  if (window == known->second.windows.end()) return;
  const WindowSpot spot = window->second.spot;
  known->second.windows.erase(window);
  const Status removed = Attempt([&] {
    known->second.layout.Remove(spot);
    return Status();
  });
  if (known->second.windows.empty() || !removed.ok()) communicators_.erase(known);
}

std::optional<WindowRecord> PlacedWindows::Find(ncclComm_t communicator, CUdeviceptr address) const {
  MutexLock lock(mutex_);
  const auto known = communicators_.find(communicator);
  if (known == communicators_.end()) return std::nullopt;
  const Window* const window = known->second.Find(address);
  return window == nullptr ? std::nullopt : std::optional(window->record);
}

Result<std::vector<WindowStep>> PlacedWindows::FindReturn(ncclComm_t communicator,
                                                          const std::vector<CUdeviceptr>& addresses) const {
  if (addresses.empty()) return std::vector<WindowStep>();
  std::vector<PlacedWindow> windows;
  std::optional<WindowLayout> layout;
  {
    MutexLock lock(mutex_);
    const auto known = communicators_.find(communicator);
    if (known != communicators_.end()) layout = known->second.layout;
    for (const CUdeviceptr address : addresses) {
      const Window* const window = known == communicators_.end() ? nullptr : known->second.Find(address);
      if (window == nullptr) return NoReturn("where NCCL has placed a window is not known");
      if (!window->record.all_reach()) return NoReturn("proxies of NCCL hold windows for the network");
      windows.push_back({window->bytes, window->spot});
      layout->Remove(window->spot);
    }
  }
  std::optional<std::vector<WindowStep>> steps = FindWindowOrder(*layout, windows);
  if (!steps) return NoReturn("no order of registering brings all windows back");
  return std::move(*steps);
}

}  // namespace commpool::internal
