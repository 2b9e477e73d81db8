#include "tools/cli/bench/memory_uses.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>

#include "src/library/base/bytes.h"
#include "src/library/base/try.h"
#include "src/library/driver/diagnosis.h"

namespace commpool::cli {

namespace {

constexpr uint64_t kSmall = 4 * internal::kKiB;
constexpr uint64_t kPage = 4 * internal::kKiB;
constexpr uint64_t kWords = kPage / sizeof(uint64_t);

// Each page's first word is the number of the next. The step has no divisor in common with the number of pages, so the
// way leads over all of them.
void WriteWay(uint64_t* memory, uint64_t pages) {
  uint64_t step = pages * 5 / 13 | 1;
  while (std::gcd(step, pages) != 1) step += 2;
  for (uint64_t page = 0; page < pages; ++page) memory[page * kWords] = (page + step) % pages;
}

// Out of the CPU's caches, which hold what was just written.
void EvictWay(const uint64_t* memory, uint64_t pages) {
  for (uint64_t page = 0; page < pages; ++page) {
    const uint64_t* const line = memory + page * kWords;
#if defined(__x86_64__)
    __builtin_ia32_clflush(line);
#elif defined(__aarch64__)
    asm volatile("dc civac, %0" ::"r"(line) : "memory");
#else
    static_cast<void>(line);
#endif
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

uint64_t Walk(const uint64_t* memory, uint64_t pages) {
  uint64_t page = 0;
  for (uint64_t steps = 0; steps < pages; ++steps) page = memory[page * kWords];
  return page;
}

uint64_t Sum(const uint64_t* memory, uint64_t words) { return std::accumulate(memory, memory + words, uint64_t{0}); }

// Compilers leave out what nobody reads.
void Keep(uint64_t value) {
  volatile uint64_t kept = value;
  (void)kept;
}

}  // namespace

std::span<const UseRow> UsesOnDevice() {
  static constexpr UseRow kRows[] = {{Use::kGpuRead, "gpu read", 0},
                                     {Use::kGpuWrite, "gpu write", 0},
                                     {Use::kGpuRead, "gpu read", kSmall},
                                     {Use::kGpuWrite, "gpu write", kSmall}};
  return kRows;
}

std::span<const UseRow> UsesBetweenDevices() {
  static constexpr UseRow kRows[] = {{Use::kToPeer, "to peer", 0}, {Use::kToPeer, "to peer", kSmall}};
  return kRows;
}

std::span<const UseRow> UsesOnHost() {
  static constexpr UseRow kRows[] = {
      {Use::kCpuRead, "cpu read", 0}, {Use::kCpuWrite, "cpu write", 0}, {Use::kCpuLoad, "cpu load", sizeof(uint64_t)}};
  return kRows;
}

Result<MemoryUses> MemoryUses::Make(const SoloDevice& device, uint64_t bytes) {
  RawMemory plain = COMMPOOL_TRY(RawMemory::Make(device.driver(), {.backing = Backing::kCuda}, 0, bytes));
  return MemoryUses(device, bytes, std::move(plain));
}

Result<double> MemoryUses::Time(const UseRow& row, const Subject& subject) const {
  const uint64_t bytes = BytesOf(row);
  switch (row.use) {
    case Use::kGpuRead:
      return TimeCopies(plain_.address(), subject.memory, bytes);
    case Use::kGpuWrite:
      return TimeCopies(subject.memory, plain_.address(), bytes);
    case Use::kToPeer:
      return TimeCopies(subject.on_peer, subject.memory, bytes);
    default:
      return TimeOnCpu(row.use, reinterpret_cast<void*>(subject.memory));
  }
}

// Large copies go behind each other, because the wait for one is no part of the bandwidth. Each small one is waited
// for.
Result<double> MemoryUses::TimeCopies(CUdeviceptr to, CUdeviceptr from, uint64_t bytes) const {
  const internal::Driver& driver = device_->driver();
  const CUstream stream = device_->streams().front();
  const bool small = bytes <= kSmall;
  const int copies = small ? 100 : 4;
  const auto wait = [&] {
    return internal::CheckCuda(driver, driver.cuda.cuStreamSynchronize(stream), {.call = "cuStreamSynchronize"});
  };
  const auto copy_all = [&]() -> Status {
    for (int copy = 0; copy < copies; ++copy) {
      COMMPOOL_TRY(internal::CheckCuda(driver, driver.cuda.cuMemcpyAsync(to, from, bytes, stream),
                                       {.call = "cuMemcpyAsync", .bytes = bytes}));
      if (small) COMMPOOL_TRY(wait());
    }
    return wait();
  };
  const double microseconds = COMMPOOL_TRY(stopwatch_.Time(copy_all));
  return microseconds / copies;
}

double MemoryUses::TimeOnCpu(Use use, void* memory) const {
  auto* const words = static_cast<uint64_t*>(memory);
  const uint64_t pages = bytes_ / kPage;
  if (use == Use::kCpuLoad) {
    WriteWay(words, pages);
    EvictWay(words, pages);
  }
  const auto start = std::chrono::steady_clock::now();
  if (use == Use::kCpuRead) Keep(Sum(words, bytes_ / sizeof(uint64_t)));
  if (use == Use::kCpuWrite) std::memset(memory, 0x3c, bytes_);
  if (use == Use::kCpuLoad) Keep(Walk(words, pages));
  const std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - start;
  return use == Use::kCpuLoad ? taken.count() / static_cast<double>(pages) : taken.count();
}

}  // namespace commpool::cli
