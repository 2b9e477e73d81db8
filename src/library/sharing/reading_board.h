// ReadingBoard: memory that an owner shares with one importer: a line of words for each block that the importer holds.
// So reads and updates exclude each other without a message, and a process that stands still delays nobody unless it
// reads.
//
// The owner writes `gate`, `updated`, `updates` and `dropped`, the importer the others. Any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "commpool/status.h"
#include "src/library/base/file_descriptor.h"
#include "src/library/base/kept_file.h"

namespace commpool::internal {

// The numbers of the last records of a process's two events (shared_records.h).
using RecordNumbers = std::array<std::atomic<uint64_t>, 2>;

// What keeps reads of a block from beginning.
enum class Gate : uint32_t {
  kOpen = 0,
  kUpdating,   // from the begin of an update to its end
  kFreed,      // its owner freed the block within an update: for good
  kPoolEnded,  // its pool ended within one: until its owner ends that
};

class ReadingBoard {
 public:
  static constexpr size_t kLines = 8192;

  struct Line {
    std::atomic<uint32_t> gate{0};     // a Gate
    std::atomic<uint32_t> readers{0};  // reads between their begin and end
    std::atomic<uint64_t> updated{0};  // the record of the last update; 0: none
    std::atomic<uint64_t> read{0};     // the record of the last read that has ended; 0: none
  };
  struct Page {
    std::atomic<uint32_t> dropped{0};  // 1: the owner has ended the import, which stopped reading messages
    RecordNumbers updates;
    RecordNumbers reads;
    std::array<Line, kLines> lines;
  };

  ReadingBoard() = default;
  // A new board, all zero, and its descriptor for the importer.
  static Result<std::pair<ReadingBoard, FileDescriptor>> Make();
  // The board behind a descriptor. kInvalidArgument for a file of another size.
  static Result<ReadingBoard> Open(const FileDescriptor& descriptor);

  bool valid() const { return pages_.valid(); }
  Page& page() const { return *reinterpret_cast<Page*>(pages_.data()); }
  Line& line(size_t place) const { return page().lines.at(place); }

 private:
  static Result<ReadingBoard> Map(const FileDescriptor& file);

  HostPages pages_;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// Returns once the word has another value than `seen`, or some milliseconds later; WakeWaiters ends the wait, in
// whichever process.
void AwaitChange(std::atomic<uint32_t>& word, uint32_t seen);
void WakeWaiters(std::atomic<uint32_t>& word);

inline Gate GateOf(const ReadingBoard::Line& line) { return static_cast<Gate>(line.gate.load()); }

}  // namespace commpool::internal
