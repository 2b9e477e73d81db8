#include "src/emulator/cuda/memory_bank.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/emulator/cuda/shared_file.h"
#include "src/library/base/bytes.h"
#include "src/library/base/write_signals.h"

namespace commpool::internal::emulator {

namespace {

constexpr uint64_t kRoomToSpread = 16;
constexpr uint64_t kHeaderBytes = (sizeof(BankHeader) + kMiB * 2 - 1) / (kMiB * 2) * (kMiB * 2);

BankHeader* MapHeader(int file) {
  void* mapped = mmap(nullptr, kHeaderBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return mapped == MAP_FAILED ? nullptr : static_cast<BankHeader*>(mapped);
}

// Past the process's limit of file sizes, where it may raise that: the limit is not meant for the memory of a device.
bool Extend(int file, off_t bytes) {
  const WriteSignalsBlocked no_signals;
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
  const rlimit most = {before.rlim_max, before.rlim_max};
  if (setrlimit(RLIMIT_FSIZE, &none) != 0) setrlimit(RLIMIT_FSIZE, &most);
  const bool extended = ftruncate(file, bytes) == 0;
  setrlimit(RLIMIT_FSIZE, &before);
  return extended;
}

}  // namespace

std::unique_ptr<MemoryBank> MemoryBank::Make(BankLocation location, uint64_t capacity) {
  std::unique_ptr<MemoryBank> bank(new MemoryBank());
  bank->file_ = FileDescriptor(memfd_create("commpool-emulated-memory", MFD_CLOEXEC));
  const auto file_bytes = static_cast<off_t>(kHeaderBytes + capacity * kRoomToSpread);
  if (!bank->file_.valid() || !Extend(bank->file_.get(), file_bytes)) return nullptr;
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
  bank->file_ = OpenAgain(descriptor);
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

uint64_t MemoryBank::used() {
  CollectReleased();
  return used_;
}

void MemoryBank::CollectReleased() {
  std::erase_if(held_elsewhere_, [this](uint32_t record) { return Reclaim(record); });
}

// The exclusive lock keeps out a process that opens the extent by an old handle.
bool MemoryBank::Reclaim(uint32_t record) {
  if (!TryLock(file_.get(), record, Lock::kExclusive)) return false;
  ExtentRecord& extent = header_->records[record];
  fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(extent.offset),
            static_cast<off_t>(extent.bytes));
  used_ -= extent.bytes;
  space_->Free(extent.offset, extent.bytes);
  free_records_.push_back(record);
  extent.bytes = 0;
  Unlock(file_.get(), record);
  return true;
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
  extent.serial.store(next_serial_++);
  references_[record] = 1;
  used_ += bytes;
  return record;
}

bool MemoryBank::Attach(uint64_t place, uint64_t serial) {
  if (place >= BankHeader::kRecords) return false;
  const auto record = static_cast<uint32_t>(place);
  const ExtentRecord& extent = At(record);
  const bool first = !references_.contains(record);
  const bool locks = first && !space_;
  if (locks && !TryLock(file_.get(), record, Lock::kShared)) return false;
  if (extent.bytes == 0 || (serial != 0 && extent.serial.load() != serial)) {
    if (locks) Unlock(file_.get(), record);
    return false;
  }
  held_elsewhere_.erase(record);
  ++references_[record];
  return true;
}

void MemoryBank::Release(uint32_t record) {
  if (--references_.at(record) != 0) return;
  references_.erase(record);
  if (!space_) {
    Unlock(file_.get(), record);
    return;
  }
  header_->records[record].serial.store(0);
  if (!Reclaim(record)) held_elsewhere_.insert(record);
}

bool MemoryBank::IsHeldElsewhere(uint32_t record) const {
  return IsLockedElsewhere(file_.get(), record, Lock::kExclusive);
}

int MemoryBank::Export(uint32_t record) const {
  FileDescriptor exported = OpenAgain(file_.get());
  if (!exported.valid() || !TryLock(exported.get(), record, Lock::kShared)) return -1;
  return lseek(exported.get(), record, SEEK_SET) == static_cast<off_t>(record) ? exported.Release() : -1;
}

}  // namespace commpool::internal::emulator
