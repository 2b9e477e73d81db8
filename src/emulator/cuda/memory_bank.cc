#include "src/emulator/cuda/memory_bank.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "src/base/bytes.h"

namespace commpool::internal::emulator {

namespace {

constexpr uint64_t kRoomToSpread = 16;
constexpr uint64_t kHeaderBytes = (sizeof(BankHeader) + kMiB * 2 - 1) / (kMiB * 2) * (kMiB * 2);

BankHeader* MapHeader(int file) {
  void* mapped = mmap(nullptr, kHeaderBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return mapped == MAP_FAILED ? nullptr : static_cast<BankHeader*>(mapped);
}

}  // namespace

std::unique_ptr<MemoryBank> MemoryBank::Make(BankLocation location, uint64_t capacity) {
  std::unique_ptr<MemoryBank> bank(new MemoryBank());
  bank->file_ = FileDescriptor(memfd_create("commpool-emulated-memory", MFD_CLOEXEC));
  const auto file_bytes = static_cast<off_t>(kHeaderBytes + capacity * kRoomToSpread);
  if (!bank->file_.valid() || ftruncate(bank->file_.get(), file_bytes) != 0) return nullptr;
  bank->capacity_ = capacity;
  bank->header_ = MapHeader(bank->file_.get());
  if (bank->header_ == nullptr) return nullptr;
  bank->header_->magic = BankHeader::kMagic;
  bank->header_->location = location;
  bank->space_.emplace(kHeaderBytes, capacity * kRoomToSpread);
  bank->identity_ = IdentityOf(bank->file_.get());
  return bank;
}

std::unique_ptr<MemoryBank> MemoryBank::Open(int descriptor) {
  struct stat about {};
  if (fstat(descriptor, &about) != 0 || static_cast<uint64_t>(about.st_size) < kHeaderBytes) return nullptr;
  std::unique_ptr<MemoryBank> bank(new MemoryBank());
  bank->file_ = FileDescriptor(fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
  if (!bank->file_.valid()) return nullptr;
  bank->header_ = MapHeader(bank->file_.get());
  if (bank->header_ == nullptr || bank->header_->magic != BankHeader::kMagic) return nullptr;
  bank->capacity_ = static_cast<uint64_t>(about.st_size - static_cast<off_t>(kHeaderBytes)) / kRoomToSpread;
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

uint64_t MemoryBank::used() {
  CollectReleased();
  return used_;
}

void MemoryBank::CollectReleased() {
  for (auto next = maybe_released_.begin(); next != maybe_released_.end();) {
    const uint32_t record = *next++;
    if (At(record).references.load() == 0) Reclaim(record);
  }
}

void MemoryBank::Reclaim(uint32_t record) {
  Punch(record);
  used_ -= At(record).bytes;
  space_->Free(At(record).offset, At(record).bytes);
  free_records_.push_back(record);
  maybe_released_.erase(record);
}

void MemoryBank::Punch(uint32_t record) const {
  fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(At(record).offset),
            static_cast<off_t>(At(record).bytes));
}

std::optional<uint32_t> MemoryBank::Allocate(uint64_t bytes, uint32_t handle_types) {
  CollectReleased();
  if (bytes > capacity_ - used_) return std::nullopt;
  if (free_records_.empty() && next_record_ == BankHeader::kRecords) return std::nullopt;
  const std::optional<uint64_t> offset = space_->Allocate(bytes);
  if (!offset) return std::nullopt;
  uint32_t record = next_record_;
  if (free_records_.empty()) {
    ++next_record_;
  } else {
    record = free_records_.back();
    free_records_.pop_back();
  }
  ExtentRecord& extent = header_->records[record];
  extent.offset = *offset;
  extent.bytes = bytes;
  extent.handle_types = handle_types;
  extent.references.store(1);
  used_ += bytes;
  return record;
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
  if (!space_) {
    // Frees the contents before the record: the owner may use the extent again as soon as the record is free.
    if (extent.references.load() == 1) Punch(record);
    extent.references.fetch_sub(1);
    return;
  }
  if (extent.references.fetch_sub(1) == 1) {
    Reclaim(record);
  } else {
    maybe_released_.insert(record);
  }
}

int MemoryBank::Export(uint32_t record) const {
  const std::string path = "/proc/self/fd/" + std::to_string(file_.get());
  const int descriptor = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor >= 0) lseek(descriptor, static_cast<off_t>(At(record).offset), SEEK_SET);
  return descriptor;
}

}  // namespace commpool::internal::emulator
