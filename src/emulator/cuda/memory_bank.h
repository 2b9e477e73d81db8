// The physical memory of one device or NUMA node: one sparse memfd, of which a handle is an extent.
//
// One file for all handles, because a file each would need tens of thousands of descriptors. The file begins with a
// directory of extents and their reference counts, shared with every process that imports one: so memory lives until
// the last process lets go, and sharing by file descriptor is real. Freed extents are punched. A device maps scattered
// pages and does not fragment; a file does, so it is sparse and much longer than the memory that it stands for.
#ifndef COMMPOOL_SRC_EMULATOR_CUDA_MEMORY_BANK_H_
#define COMMPOOL_SRC_EMULATOR_CUDA_MEMORY_BANK_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "src/base/file_descriptor.h"
#include "src/emulator/cuda/extent_allocator.h"

namespace commpool::internal::emulator {

struct BankLocation {
  enum class Kind : uint32_t { kDevice, kHostNuma, kHost };
  Kind kind = Kind::kDevice;
  int32_t id = 0;
};

// The directory at the head of the file: plain data in shared memory.
struct ExtentRecord {
  std::atomic<uint32_t> references;  // handles and mappings of all processes; 0 is a free record
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

// Not thread-safe: the machine's lock guards it. The records themselves are shared between processes.
class MemoryBank {
 public:
  // A bank of this process; null where the system has no descriptor or memory for it.
  static std::unique_ptr<MemoryBank> Make(BankLocation location, uint64_t capacity);
  // Another process's bank, through a descriptor that it exported; null where the descriptor is none of an emulator's.
  static std::unique_ptr<MemoryBank> Open(int descriptor);
  ~MemoryBank();

  const BankLocation& location() const { return header_->location; }
  uint64_t capacity() const { return capacity_; }
  uint64_t used();
  int file() const { return file_.get(); }
  // Tells banks of different files apart.
  uint64_t identity() const { return identity_; }
  static uint64_t IdentityOf(int descriptor);

  // A record with one reference; nothing where no space is left.
  std::optional<uint32_t> Allocate(uint64_t bytes, uint32_t handle_types);
  // The record of the extent at an offset, with one more reference; nothing where there is none.
  std::optional<uint32_t> Attach(uint64_t offset);
  void AddReference(uint32_t record);
  // The last reference of all processes punches the extent.
  void Release(uint32_t record);

  const ExtentRecord& At(uint32_t record) const { return header_->records[record]; }

  // A new open file whose position is the extent's offset: what an export hands out.
  int Export(uint32_t record) const;

 private:
  MemoryBank() = default;
  void CollectReleased();
  void Reclaim(uint32_t record);
  void Punch(uint32_t record) const;

  FileDescriptor file_;
  BankHeader* header_ = nullptr;
  uint64_t capacity_ = 0;
  uint64_t identity_ = 0;
  // Of a bank of this process.
  std::optional<ExtentAllocator> space_;
  uint64_t used_ = 0;
  std::vector<uint32_t> free_records_;
  uint32_t next_record_ = 0;           // of those that were never used
  std::set<uint32_t> maybe_released_;  // released here; the last importer may have released them since
};

}  // namespace commpool::internal::emulator

#endif  // COMMPOOL_SRC_EMULATOR_CUDA_MEMORY_BANK_H_
