#include "src/interpose/room/torch_cache.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <system_error>
#include <thread>

#include "src/interpose/audit/real_driver.h"
#include "src/interpose/preload/symbols.h"
#include "src/interpose/room/streams.h"

namespace commpool::run {

namespace {

constexpr std::chrono::seconds kPatience{1};

// PyTorch has no function that empties its cache without the lock of Python's interpreter: a method of its allocator
// does. The versions of which we know where it stands in the table of a c10::DeviceAllocator.
constexpr uint64_t kMajor = 2;
constexpr uint64_t kFirstMinor = 9;
constexpr uint64_t kLastMinor = 15;
constexpr size_t kSlot = 7;
// The functions that have no body there, in the slots before it and behind: it is the table that we know.
constexpr size_t kSimple = 3;
constexpr std::array<size_t, 6> kPure = {2, 5, 6, 7, 8, 9};

using Function = void (*)();
using EmptyCache = void (*)(void* allocator, uint64_t, uint64_t);  // the numbers of a MemPool; zeros: every memory

// As compilers write the type of a class with one base.
struct TypeInfo {
  const void* kind;
  const char* name;
  const TypeInfo* base;
};

struct Class {
  const TypeInfo* type = nullptr;
  bool known = false;
};

template <typename Pointer>
Pointer Find(const char* name) {
  return reinterpret_cast<Pointer>(preload::FindDefinition(name));
}

bool IsKnownTable(const Function* slots) {
  const Function pure = slots[kPure[0]];
  return slots[kSimple] == Find<Function>("_ZNK3c109Allocator18is_simple_data_ptrERKNS_7DataPtrE") &&
         slots[kSimple + 1] != pure &&
         std::all_of(kPure.begin(), kPure.end(), [&](size_t slot) { return slots[slot] == pure; });
}

Class DeviceAllocator() {
  Class found;
  found.type = Find<const TypeInfo*>("_ZTIN3c1015DeviceAllocatorE");
  const auto table = Find<const Function*>("_ZTVN3c1015DeviceAllocatorE");
  const auto version = Find<uint64_t (*)()>("aoti_torch_abi_version");
  if (found.type == nullptr || table == nullptr || version == nullptr) return found;
  const uint64_t minor = version() >> 48 & 0xff;
  found.known = version() >> 56 == kMajor && minor >= kFirstMinor && minor <= kLastMinor && IsKnownTable(table + 2);
  return found;
}

// Null where PyTorch has made none, or where it is of a class that we do not know.
void* Allocator() {
  const auto place = Find<std::atomic<void*>*>("_ZN3c104cuda20CUDACachingAllocator9allocatorE");
  void* const allocator = place == nullptr ? nullptr : place->load();
  if (allocator == nullptr) return nullptr;
  static const Class device_allocator = DeviceAllocator();
  if (!device_allocator.known) return nullptr;
  const TypeInfo* type = (*static_cast<const TypeInfo* const* const*>(allocator))[-1];
  while (type != device_allocator.type) {
    if (type == nullptr || type->kind != device_allocator.type->kind) return nullptr;
    type = type->base;
  }
  return allocator;
}

// The one question that is under way.
struct Question {
  std::mutex mutex;
  std::condition_variable ended;
  bool pending = false;
  bool awaited = false;
};

Question& TheQuestion() {
  static auto* const question = new Question();
  return *question;
}

// In the asker's context: without one the runtime would make one on device 0, whichever device the rank has.
void Answer(void* allocator, CUcontext context) {
  const audit::WithContext current(audit::RealDriver::Get(), context);
  const Relaxed relaxed;
  if (!Streams::Get().AnyCaptures() && Streams::Get().AllIdle()) {
    try {
      reinterpret_cast<EmptyCache>((*static_cast<const Function* const*>(allocator))[kSlot])(allocator, 0, 0);
    } catch (...) {  // NOLINT: an error of PyTorch's: its cache stays
    }
  }
  const std::lock_guard<std::mutex> lock(TheQuestion().mutex);
  TheQuestion().pending = false;
  TheQuestion().ended.notify_all();
}

}  // namespace

void EmptyTorchCache() {
  void* const allocator = Allocator();
  if (allocator == nullptr) return;
  CUcontext context = nullptr;
  const auto ask = audit::RealDriver::Get().cuCtxGetCurrent;
  if (ask == nullptr || ask(&context) != CUDA_SUCCESS || context == nullptr) return;
  Question& question = TheQuestion();
  std::unique_lock<std::mutex> lock(question.mutex);
  // Where an earlier one waits for the lock still, a second would as well.
  if (question.pending && !question.awaited) return;
  if (!question.pending) {
    try {
      std::thread(&Answer, allocator, context).detach();
    } catch (const std::system_error&) {
      return;  // the host has no thread
    }
    question.pending = question.awaited = true;
  }
  const auto ended = [&] { return !question.pending; };
  if (!question.ended.wait_for(lock, kPatience, ended)) question.awaited = false;
}

}  // namespace commpool::run
