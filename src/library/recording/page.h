// A page: the unit in which a recording is written, and in which its oldest part goes.
//
// A file is pages of kPageBytes. The first holds ProcessFacts and stays. The others are a ring: page number N, from 1,
// lies at position 1 + (N - 1) % (pages of the file - 1), so that the newest overwrite the oldest. A page's header is
// written after its entries. Whatever stops the process in between, the page is what it was before, or is damaged and
// known to be so by its checksum.
#ifndef COMMPOOL_SRC_LIBRARY_RECORDING_PAGE_H_
#define COMMPOOL_SRC_LIBRARY_RECORDING_PAGE_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace commpool::internal::recording {

inline constexpr size_t kPageBytes = 64 << 10;
// Of each version: readers of other versions can say so.
inline constexpr uint32_t kMagic = 0x52505043;  // "CPPR"

// Little-endian, like every host that has a GPU.
struct PageHeader {
  uint32_t magic = kMagic;
  uint32_t version = 0;
  uint64_t recording = 0;  // a random number: pages of an older recording in the same file have another
  uint64_t number = 0;     // 0 is the page with the process
  uint64_t chapter = 0;    // the number of the page that its chapter begins with
  uint64_t time = 0;       // ns of the steady clock: the first entry counts from it
  uint32_t bytes = 0;      // of entries, after the header
  uint32_t checksum = 0;   // of those bytes, and of the header up to here
};
static_assert(sizeof(PageHeader) == 48);
inline constexpr size_t kEntryRoom = kPageBytes - sizeof(PageHeader);

// FNV-1a of 64 bits, folded, eight bytes at a time.
uint32_t ChecksumOf(const PageHeader& header, std::string_view entries);

// Where the page lies in a file of so many pages.
constexpr uint64_t OffsetOf(uint64_t number, uint64_t pages) {
  return number == 0 ? 0 : (1 + (number - 1) % (pages - 1)) * kPageBytes;
}

}  // namespace commpool::internal::recording

#endif  // COMMPOOL_SRC_LIBRARY_RECORDING_PAGE_H_
