// RecordingFile: one process's recording on the disk, which never grows past its limit. Recorder owns one, and one
// thread at a time uses it.
//
// A file is pages of kPageBytes. The first holds ProcessFacts and stays. The others are a ring: page number N, from 1,
// lies at position 1 + (N - 1) % (pages of the file - 1), so that the newest overwrite the oldest. A page's header is
// written after its entries. Whatever stops the process in between, the page is what it was before, or is damaged and
// known to be so by its checksum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "commpool/status.h"
#include "src/library/base/file_descriptor.h"
#include "src/library/recording/entries.h"

namespace commpool::internal::recording {

inline constexpr size_t kPageBytes = 64 << 10;
// Of each version: readers of other versions can say so.
inline constexpr uint32_t kMagic = 0x52505043;  // "CPPR"

// Little-endian, like every host that has a GPU.
struct PageHeader {
  uint32_t magic = kMagic;
  uint32_t version = kVersion;
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

class RecordingFile {
 public:
  // Makes a file in the directory, which it makes too where it is missing (not its parents). `facts.limit_bytes` is
  // rounded down to pages, at least kFewestPages. kInvalidArgument where the path is no directory, kOutOfMemory where
  // the disk has no room for the first page.
  static constexpr uint64_t kFewestPages = 16;
  static Result<RecordingFile> Make(const std::string& directory, ProcessFacts facts);

  const std::string& path() const { return path_; }
  // A chapter is at most so many pages, so that the ring always holds some whole ones.
  uint64_t pages_of_a_chapter() const { return (pages_ - 1) / 8; }

  // Writes what is new of a page: entries from `written` on, and then the header, whose checksum it sets.
  Status Write(PageHeader header, std::string_view entries, size_t written);

 private:
  RecordingFile(std::string path, FileDescriptor file, uint64_t pages, uint64_t recording);

  std::string path_;
  FileDescriptor file_;
  uint64_t pages_;
  uint64_t recording_;
};

}  // namespace commpool::internal::recording
