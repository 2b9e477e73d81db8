// Chooses the sizes of blocks and segments for a request. Pure functions: any thread.
#pragma once

#include <cstdint>
#include <optional>

#include "commpool/status.h"
#include "src/library/engine/size_classes.h"
#include "src/library/engine/types.h"

namespace commpool::internal::engine {

// How much memory an expandable pool spends to save work. Each value N means one part in N; 0: no limit. All but the
// last say by which part of the highest need so far the pool may exceed that need before it does the work.
struct Slack {
  uint64_t move_share = 250;         // before pages move instead of being made
  uint64_t steady_move_share = 160;  // the same for a steady program, which would move pages in every step
  uint64_t splinter_share = 100;     // before pages move that leave splinters
  uint64_t wait_share = 160;         // before a request takes memory of other streams, and waits on the device
  uint64_t host_wait_share = 100;    // before the host waits for pages that could move
  uint64_t small_page_share = 160;   // before new pages are small, because a live block keeps its whole page
  // A small page is at most this share of the pool's memory; 0: all pages are as large as page_bytes.
  uint64_t page_share = 1200;
};

// How an engine cuts and places. The pool derives them from its own options when it is made; they never change.
struct EngineOptions {
  uint64_t alignment = 512;                // of every block, a power of two
  uint64_t granularity = 2 * 1024 * 1024;  // segments are multiples of it; a multiple of the alignment
  Spaces spaces = Spaces::kOne;
  Choice choice = Choice::kBestFit;        // of large blocks
  uint64_t page_bytes = 32 * 1024 * 1024;  // of an expandable pool: the largest page
  Slack slack = {};
  OwnReuse own_reuse = OwnReuse::kAtOnce;
  SegmentSizes segment_sizes = SegmentSizes::kRoomy;
  // Bytes of no block behind each block, so that a tool finds a kernel that writes past its end.
  uint64_t guard_bytes = 0;
  uint64_t segment_bytes = 0;  // smallest segment to ask for; 0 chooses by the request (SegmentBytes)
};

// The options of engines whose pools grow inside an allocation.
constexpr EngineOptions FixedOptions() { return {.spaces = Spaces::kApart}; }
// First fit gathers free memory at one end, so that whole pages are free and can move. Best fit was tried: it is better
// where training follows generation, but in generation alone the program then uses 90 % of the pool instead of 96 %.
constexpr EngineOptions ExpandableOptions() { return {.spaces = Spaces::kApart, .choice = Choice::kFirstFit}; }

// Where a block of so many bytes lies.
constexpr Space SpaceOf(uint64_t block_bytes, Spaces spaces) {
  return spaces == Spaces::kApart && block_bytes <= kSmallBytes ? Space::kSmall : Space::kLarge;
}

// The bytes of the block that serves a request, its guard included: a multiple of the alignment, so that every block
// starts at one. A small block with a space of its own gets the size of a class. Nothing for zero bytes and on
// overflow. REQUIRES: the alignment is a power of two.
constexpr std::optional<uint64_t> BlockBytesOf(uint64_t requested, const EngineOptions& options) {
  // A guard must not turn too many bytes into few. Zero wraps round.
  if (requested - 1 > UINT64_MAX - options.guard_bytes - options.alignment) return std::nullopt;
  const auto rounded = [&](uint64_t bytes) { return (bytes + options.alignment - 1) & ~(options.alignment - 1); };
  const uint64_t aligned = rounded(requested + options.guard_bytes);
  if (SpaceOf(aligned, options.spaces) == Space::kLarge) return aligned;
  // Most classes are multiples of the alignment already; a large alignment rounds the others up.
  return rounded(ClassBytes(ClassOf(aligned)));
}

// The bytes of the segment to make when no free block holds `block_bytes`. Segments are few and large, because each one
// costs driver calls. Up to 1 MiB asks for 2 MiB, less than 4 MiB for 8 MiB (kExact: for itself), more for itself;
// always at least `segment_bytes`, rounded up to the granularity. Nothing on overflow. REQUIRES: granularity > 0.
std::optional<uint64_t> SegmentBytes(uint64_t block_bytes, const EngineOptions& options);

// Both sizes of a request, and where its block lies. kInvalidArgument for zero bytes and on overflow.
struct RequestSizes {
  uint64_t block_bytes = 0;
  uint64_t segment_bytes = 0;
  Space space = Space::kLarge;
};
Result<RequestSizes> SizesOf(uint64_t requested, const EngineOptions& options);

}  // namespace commpool::internal::engine
