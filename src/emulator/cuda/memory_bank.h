// The physical memory of one device or NUMA node. It is one sparse memfd, and each handle is an extent of it.
//
// All handles share one file, because a file for each would need tens of thousands of descriptors. The file begins with
// a directory of extents. A process that imports an extent, and each exported descriptor, hold a shared lock on the
// record's byte: so memory lives until the last process and the last descriptor let go, and the kernel lets go for
// those that were killed. Freed extents are punched. A device maps scattered pages and does not fragment, but a file
// does. So the file is sparse, and much longer than the memory that it stands for.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "src/emulator/cuda/extent_allocator.h"
#include "src/library/base/file_descriptor.h"

namespace commpool::internal::emulator {

struct BankLocation {
  enum class Kind : uint32_t { kDevice, kHostNuma, kHost };
  Kind kind = Kind::kDevice;
  int32_t id = 0;
};

// The directory at the head of the file: plain data in shared memory.
struct ExtentRecord {
  std::atomic<uint64_t> serial;  // of the allocation; 0: its owner has freed it
  uint32_t handle_types;
  uint64_t offset;
  uint64_t bytes;
};

struct BankHeader {
  static constexpr uint64_t kMagic = 0x6d6d6f636b6e6162;
  static constexpr uint32_t kRecords = 65536;
  uint64_t magic;
  BankLocation location;
  ExtentRecord records[kRecords];
};

// Owns the file and its mapping. The machine holds one for each device and NUMA node, and one for each bank that it
// imported. It is not thread-safe: the machine's lock guards it. Other processes read the records.
class MemoryBank {
 public:
  // Makes a bank of this process; null if the system has no descriptor or memory for it.
  static std::unique_ptr<MemoryBank> Make(BankLocation location, uint64_t capacity);
  // Opens another process's bank by an exported descriptor; null if no emulator made the descriptor.
  static std::unique_ptr<MemoryBank> Open(int descriptor);
  ~MemoryBank();

  const BankLocation& location() const { return header_->location; }
  uint64_t capacity() const { return capacity_; }
  uint64_t used();
  int file() const { return file_.get(); }
  // differs between banks of different files
  uint64_t identity() const { return identity_; }

  // Makes a record with one reference; nothing if no space is left.
  std::optional<uint32_t> Allocate(uint64_t bytes, uint32_t handle_types);
  // Adds a reference of this process to an extent that lives. Returns false for another, or if the serial is not that
  // of the extent; 0 stands for any.
  bool Attach(uint64_t place, uint64_t serial = 0);
  // Drops a reference of this process. The owner punches the extent once nobody else holds it.
  void Release(uint32_t record);
  // Says whether another process, or an exported descriptor, keeps the extent.
  bool IsHeldElsewhere(uint32_t record) const;

  const ExtentRecord& At(uint32_t record) const { return header_->records[record]; }

  // Opens the file anew, at the record's byte: an export hands this descriptor out, and it keeps the extent.
  int Export(uint32_t record) const;

 private:
  MemoryBank() = default;
  void CollectReleased();
  bool Reclaim(uint32_t record);

  FileDescriptor file_;
  BankHeader* header_ = nullptr;
  uint64_t capacity_ = 0;
  uint64_t identity_ = 0;
  std::map<uint32_t, uint32_t> references_;  // of this process, by record
  // only for a bank of this process
  std::optional<ExtentAllocator> space_;
  uint64_t used_ = 0;
  std::vector<uint32_t> free_records_;
  uint32_t next_record_ = 0;  // the first record that was never used
  uint64_t next_serial_ = 1;
  // this process released them; somebody else held them then
  std::set<uint32_t> held_elsewhere_;
};

}  // namespace commpool::internal::emulator
