#include "src/emulator/cuda/shared_event.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <atomic>
#include <utility>

namespace commpool::internal::emulator {

struct SharedEvent::State {
  static constexpr uint64_t kMagic = 0x6d6d6f636576656e;
  uint64_t magic;
  int32_t device_number;
  std::atomic<uint64_t> begun;  // numbers that were given to records
  std::atomic<uint64_t> last;   // the highest one whose byte was locked
};

std::shared_ptr<SharedEvent> SharedEvent::Map(FileDescriptor file) {
  void* const mapped = mmap(nullptr, sizeof(State), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (mapped == MAP_FAILED) return nullptr;
  return std::shared_ptr<SharedEvent>(new SharedEvent(std::move(file), static_cast<State*>(mapped)));
}

std::shared_ptr<SharedEvent> SharedEvent::Make(int device_number) {
  FileDescriptor file(memfd_create("commpool-emulated-event", MFD_CLOEXEC));
  if (!file.valid() || ftruncate(file.get(), sizeof(State)) != 0) return nullptr;
  std::shared_ptr<SharedEvent> event = Map(std::move(file));
  if (event == nullptr) return nullptr;
  event->state_->device_number = device_number;
  event->state_->magic = State::kMagic;
  return event;
}

std::shared_ptr<SharedEvent> SharedEvent::Open(FileDescriptor file) {
  struct stat about = {};
  if (fstat(file.get(), &about) != 0 || about.st_size != sizeof(State)) return nullptr;
  std::shared_ptr<SharedEvent> event = Map(std::move(file));
  return event != nullptr && event->state_->magic == State::kMagic ? event : nullptr;
}

SharedEvent::~SharedEvent() { munmap(state_, sizeof(State)); }

int SharedEvent::device_number() const { return state_->device_number; }

uint64_t SharedEvent::last() const { return state_->last.load(); }

std::shared_ptr<void> SharedEvent::Record(uint64_t* number) {
  const uint64_t own = state_->begun.fetch_add(1) + 1;
  TryLock(file_.get(), own, Lock::kExclusive);  // nobody else knows the number yet
  uint64_t last = state_->last.load();
  while (last < own && !state_->last.compare_exchange_weak(last, own)) {
  }
  *number = own;
  return {nullptr, [self = shared_from_this(), own](void*) { Unlock(self->file_.get(), own); }};
}

}  // namespace commpool::internal::emulator
