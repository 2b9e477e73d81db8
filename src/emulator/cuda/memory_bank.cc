#include "src/emulator/cuda/memory_bank.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "src/base/bytes.h"
#include "src/base/check.h"

namespace commpool::emulator {

namespace {

constexpr uint64_t kHeaderBytes = (sizeof(BankHeader) + kMiB * 2 - 1) / (kMiB * 2) * (kMiB * 2);

BankHeader* MapHeader(int file) {
  void* mapped = mmap(nullptr, kHeaderBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return mapped == MAP_FAILED ? nullptr : static_cast<BankHeader*>(mapped);
}

}  // namespace

MemoryBank::MemoryBank(BankLocation location, uint64_t capacity)
    : file_(memfd_create("commpool-emulated-memory", MFD_CLOEXEC)), capacity_(capacity) {
  COMMPOOL_CHECK(file_.valid() && ftruncate(file_.get(), static_cast<off_t>(kHeaderBytes + capacity)) == 0,
                 "the system gives no file for emulated memory");
  header_ = MapHeader(file_.get());
  COMMPOOL_CHECK(header_ != nullptr, "emulated memory cannot be mapped");
  header_->magic = BankHeader::kMagic;
  header_->location = location;
  identity_ = IdentityOf(file_.get());
}

std::unique_ptr<MemoryBank> MemoryBank::Open(int descriptor) {
  struct stat about {};
  if (fstat(descriptor, &about) != 0 || static_cast<uint64_t>(about.st_size) < kHeaderBytes) return nullptr;
  std::unique_ptr<MemoryBank> bank(new MemoryBank());
  bank->file_ = FileDescriptor(fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
  if (!bank->file_.valid()) return nullptr;
  bank->header_ = MapHeader(bank->file_.get());
  if (bank->header_ == nullptr || bank->header_->magic != BankHeader::kMagic) return nullptr;
  bank->capacity_ = static_cast<uint64_t>(about.st_size) - kHeaderBytes;
  bank->identity_ = IdentityOf(descriptor);
  return bank;
}

MemoryBank::~MemoryBank() {
  if (header_ != nullptr) munmap(header_, kHeaderBytes);
}

uint64_t MemoryBank::IdentityOf(int descriptor) {
  struct stat about {};
  return fstat(descriptor, &about) == 0 ? static_cast<uint64_t>(about.st_ino) : 0;
}

uint64_t MemoryBank::used() const {
  uint64_t bytes = 0;
  for (const auto& [offset, record] : occupied_) bytes += At(record).references.load() == 0 ? 0 : At(record).bytes;
  return bytes;
}

void MemoryBank::CollectReleased() {
  std::erase_if(occupied_, [&](const auto& entry) { return At(entry.second).references.load() == 0; });
}

// First fit: emulated memory is sparse, so how it is laid out costs nothing.
std::optional<uint64_t> MemoryBank::FindSpace(uint64_t bytes) const {
  uint64_t start = kHeaderBytes;
  for (const auto& [offset, record] : occupied_) {
    if (offset - start >= bytes) return start;
    start = offset + At(record).bytes;
  }
  if (kHeaderBytes + capacity_ - start >= bytes) return start;
  return std::nullopt;
}

std::optional<uint32_t> MemoryBank::Allocate(uint64_t bytes, uint32_t handle_types) {
  CollectReleased();
  if (used() + bytes > capacity_) return std::nullopt;
  const std::optional<uint64_t> offset = FindSpace(bytes);
  if (!offset) return std::nullopt;  // unlike a device's, the file's space can be fragmented: a device maps pages
  for (uint32_t record = 0; record < BankHeader::kRecords; ++record) {
    ExtentRecord& extent = header_->records[record];
    if (extent.references.load() != 0) continue;
    extent.offset = *offset;
    extent.bytes = bytes;
    extent.handle_types = handle_types;
    extent.references.store(1);
    occupied_.emplace(*offset, record);
    return record;
  }
  return std::nullopt;
}

std::optional<uint32_t> MemoryBank::Attach(uint64_t offset) {
  for (uint32_t record = 0; record < BankHeader::kRecords; ++record) {
    ExtentRecord& extent = header_->records[record];
    uint32_t references = extent.references.load();
    while (references != 0 && extent.offset == offset) {
      if (extent.references.compare_exchange_weak(references, references + 1)) return record;
    }
  }
  return std::nullopt;
}

void MemoryBank::AddReference(uint32_t record) { header_->records[record].references.fetch_add(1); }

void MemoryBank::Release(uint32_t record) {
  ExtentRecord& extent = header_->records[record];
  // The contents go before the record does: once it is free the owner may hand the extent out again.
  if (extent.references.load() == 1) {
    fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(extent.offset),
              static_cast<off_t>(extent.bytes));
  }
  extent.references.fetch_sub(1);
}

int MemoryBank::Export(uint32_t record) const {
  const std::string path = "/proc/self/fd/" + std::to_string(file_.get());
  const int descriptor = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor >= 0) lseek(descriptor, static_cast<off_t>(At(record).offset), SEEK_SET);
  return descriptor;
}

}  // namespace commpool::emulator
