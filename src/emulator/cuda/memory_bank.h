// The physical memory of one device or NUMA node. It is one sparse memfd, and each handle is an extent of it.
//
// All handles share one file, because a file for each would need tens of thousands of descriptors. The file begins with
// a directory of extents and their reference counts. Every process that imports an extent shares that directory: so
// memory lives until the last process lets go, and sharing by file descriptor is real. Freed extents are punched. A
// device maps scattered pages and does not fragment, but a file does. So the file is sparse, and much longer than the
// memory that it stands for.
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
  std::atomic<uint32_t> references;  // references of handles and mappings in all processes; 0: a free record
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
// imported. It is not thread-safe: the machine's lock guards it. Processes share the records.
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
  static uint64_t IdentityOf(int descriptor);

  // Makes a record with one reference; nothing if no space is left.
  std::optional<uint32_t> Allocate(uint64_t bytes, uint32_t handle_types);
  // Adds a reference to the record of the extent at an offset; nothing if there is none.
  std::optional<uint32_t> Attach(uint64_t offset);
  void AddReference(uint32_t record);
  // Drops a reference. The last one of all processes punches the extent.
  void Release(uint32_t record);

  const ExtentRecord& At(uint32_t record) const { return header_->records[record]; }

  // Opens the file anew, at the extent's offset: an export hands this descriptor out.
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
  // only for a bank of this process
  std::optional<ExtentAllocator> space_;
  uint64_t used_ = 0;
  std::vector<uint32_t> free_records_;
  uint32_t next_record_ = 0;  // the first record that was never used
  // this process released them; another importer may have released its reference since
  std::set<uint32_t> maybe_released_;
};

}  // namespace commpool::internal::emulator

#endif  // COMMPOOL_SRC_EMULATOR_CUDA_MEMORY_BANK_H_
