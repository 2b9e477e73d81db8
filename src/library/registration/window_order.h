// In which order the windows of a communicator come back to their places after all of them have ended, and a model of
// where NCCL places windows, so that commpool can tell beforehand where one would come to lie. Pure.
//
// NCCL 2.28.9 and 2.30.7 reserve addresses once a communicator (src/dev_runtime.cc); a window takes the lowest gap that
// holds it. Devices read of a window by a record, whose address is the window's handle: it is the lowest free one of 64
// in the page that got room last (src/allocator.cc). Both follow from the sequence of calls alone, so all ranks agree.
//
// NCCL has windows of its own, and programs may have theirs. Nobody tells of these: they are learnt from where windows
// come to lie, and what is below a place that was passed over counts as taken.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "src/library/base/bytes.h"

namespace commpool::internal {

struct WindowSpot {
  uint64_t offset = 0;  // in the communicator's addresses
  uint32_t record = 0;
  auto operator<=>(const WindowSpot&) const = default;
};

// The windows of one communicator. A value, which is copied to try things out.
class WindowLayout {
 public:
  static constexpr uint32_t kRecordsOfPage = 64;
  static constexpr uint64_t kGranularity = 2 * kMiB;  // of the addresses: of the memory of all GPUs that have windows

  // Where a window of so many bytes would come.
  WindowSpot Next(uint64_t bytes) const { return {LowestGap(bytes), NextRecord()}; }
  // It came there.
  WindowSpot Add(uint64_t bytes);
  // The same where it came to `spot`: what differs from Next tells of windows of others.
  void Learn(uint64_t bytes, const WindowSpot& spot);
  // REQUIRES: it is there.
  void Remove(const WindowSpot& spot);

 private:
  uint64_t LowestGap(uint64_t bytes) const;
  uint32_t NextRecord() const;
  void TakeAddresses(uint64_t from, uint64_t to);
  void OpenPages(uint32_t count);
  void TakeRecord(uint32_t record);

  std::map<uint64_t, uint64_t> taken_ = {};  // ends, by offsets; they do not overlap
  std::set<uint32_t> free_records_ = {};     // of the pages that there are
  std::vector<uint32_t> open_pages_ = {};    // that have free records; the one that serves is last
  uint32_t pages_ = 0;
};

struct PlacedWindow {
  uint64_t bytes = 0;
  WindowSpot spot;
};

struct WindowStep {
  enum class Act { kRegister, kEnd };
  Act act = Act::kRegister;
  size_t window = 0;  // its place in the list
  bool operator==(const WindowStep&) const = default;
};

// Steps after which each window is registered at its spot, from a layout in which none of them is. A window may be
// registered elsewhere for a while, where it fills a gap that NCCL would give to another one. Nothing where the search
// finds no steps: it gives up after a bounded number of tries. The same on every rank that passes the same.
std::optional<std::vector<WindowStep>> FindWindowOrder(const WindowLayout& layout,
                                                       const std::vector<PlacedWindow>& windows);

}  // namespace commpool::internal
