#include "src/interpose/room/ask.h"

#include <array>
#include <cstdio>
#include <map>
#include <mutex>
#include <utility>

#include "src/interpose/audit/callers.h"
#include "src/interpose/audit/loaded_objects.h"
#include "src/interpose/nccl_memory/pool_library.h"
#include "src/interpose/nccl_memory/pooled_memory.h"
#include "src/interpose/preload/process_name.h"
#include "src/interpose/room/streams.h"
#include "src/interpose/room/torch_cache.h"

namespace commpool::run {

namespace {

using audit::RealDriver;

struct Counts {
  uint64_t failed = 0;
  uint64_t asked = 0;
  uint64_t right = 0;    // the second time
  int64_t released = 0;  // bytes more that the device had free
};

class Book {
 public:
  static Book& Get() {
    static auto* const book = new Book();
    return *book;
  }
  audit::LoadedObjects objects;

  void Count(const std::string& library, const char* call, const Counts& one) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Counts& row = rows_[{library, call}];
    row.failed += one.failed;
    row.asked += one.asked;
    row.right += one.right;
    row.released += one.released;
  }
  std::map<std::pair<std::string, std::string>, Counts> Rows() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return rows_;
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, Counts> rows_;
};

// Of this thread, while it asks: what fails meanwhile is part of that.
thread_local bool asks = false;

int64_t FreeBytes() {
  size_t free = 0;
  size_t total = 0;
  const auto ask = RealDriver::Get().cuMemGetInfo;
  return ask != nullptr && ask(&free, &total) == CUDA_SUCCESS ? static_cast<int64_t>(free) : 0;
}

// The native allocator holds its lock while it calls the driver, and empties its cache itself before it fails.
bool IsTorchsAllocator(const audit::Caller& caller) { return caller.file.find("/libc10_cuda") != std::string::npos; }

Counts GiveBack(int device, bool of_torch) {
  Counts counts{.failed = 1};
  const Relaxed relaxed;
  if (Streams::Get().AnyCaptures()) return counts;
  counts.asked = 1;
  const int64_t before = FreeBytes();
  const bool idle = Streams::Get().AllIdle();
  if (const PoolLibrary* const library = PoolLibrary::Loaded()) {
    library->release_idle(device, idle ? COMMPOOL_DEVICE_IDLE : COMMPOOL_DEVICE_MAY_WORK, nullptr);
  }
  if (idle && !of_torch) EmptyTorchCache();
  counts.released = FreeBytes() - before;
  return counts;
}

}  // namespace

bool IsAsked() { return Settings::Get().asked; }

CUresult MakeAgain(const char* call, int device, const std::function<CUresult()>& make) {
  if (asks || !IsAsked() || device < 0 || preload::IsForked()) return CUDA_ERROR_OUT_OF_MEMORY;
  Book& book = Book::Get();
  // commpool looks for memory itself, and this thread may hold locks of its own.
  if (audit::IsWithin(book.objects, "libcommpool.so")) return CUDA_ERROR_OUT_OF_MEMORY;
  const audit::Caller caller = audit::CallerOf(book.objects);
  const bool of_torch = IsTorchsAllocator(caller);
  if (of_torch && PoolLibrary::Loaded() == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  asks = true;
  Counts counts{.failed = 1};
  try {
    counts = GiveBack(device, of_torch);
  } catch (...) {  // NOLINT: whoever called the driver knows nothing of C++
  }
  asks = false;
  const CUresult result = counts.asked != 0 ? make() : CUDA_ERROR_OUT_OF_MEMORY;
  if (result == CUDA_SUCCESS) counts.right = 1;
  book.Count(caller.library, call, counts);
  return result;
}

std::string TableOfAsked() {
  std::string text;
  std::array<char, 200> line;
  for (const auto& [who, row] : Book::Get().Rows()) {
    const auto count = [](uint64_t value) { return static_cast<unsigned long long>(value); };
    std::snprintf(line.data(), line.size(), "  %-16.16s %-28.28s %8llu %8llu %8llu %12.1f\n", who.first.c_str(),
                  who.second.c_str(), count(row.failed), count(row.asked), count(row.right),
                  static_cast<double>(row.released) / (1 << 20));
    text += line.data();
  }
  if (text.empty()) return text;
  std::snprintf(line.data(), line.size(), "  %-16s %-28s %8s %8s %8s %12s\n", "who", "call", "failed", "asked", "right",
                "MiB released");
  return line.data() + text;
}

}  // namespace commpool::run
