#include "tools/cli/bench/hot_loops.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cmath>
#include <numeric>
#include <optional>
#include <random>
#include <thread>

namespace commpool::cli {

namespace {

using Clock = std::chrono::steady_clock;

double NanosecondsBetween(Clock::time_point start, Clock::time_point end) {
  return std::chrono::duration<double, std::nano>(end - start).count();
}

Status OutOfMemory(uint64_t bytes) {
  return Status(StatusCode::kOutOfMemory, "an allocator has no block of " + std::to_string(bytes) + " bytes");
}

// False where an allocation failed.
template <typename Allocator>
bool RunPairs(const Allocator& allocator, uint64_t bytes, uint64_t pairs) {
  bool served = true;
  for (uint64_t pair = 0; pair < pairs; ++pair) {
    void* const block = allocator.Allocate(bytes);
    served = served && block != nullptr;
    allocator.Free(block);
  }
  return served;
}

// How many pairs take about `target_ns`, once enough of them have filled the caches.
template <typename Allocator>
std::optional<uint64_t> PairsIn(const Allocator& allocator, uint64_t bytes, double target_ns) {
  constexpr uint64_t kTrial = 64;
  if (!RunPairs(allocator, bytes, kTrial)) return std::nullopt;
  const Clock::time_point start = Clock::now();
  RunPairs(allocator, bytes, kTrial);
  const double pair_ns = std::max(NanosecondsBetween(start, Clock::now()) / kTrial, 1.0);
  return std::max(static_cast<uint64_t>(target_ns / pair_ns), kTrial);
}

// Replaces every block, in order.
template <typename Allocator>
bool Replace(const Allocator& allocator, uint64_t bytes, std::vector<void*>& blocks) {
  bool served = true;
  for (void*& block : blocks) {
    allocator.Free(block);
    block = allocator.Allocate(bytes);
    served = served && block != nullptr;
  }
  return served;
}

// Shuffles the blocks, not the places that the loop visits: the loop's own cache misses must not count.
template <typename Allocator>
Result<double> TimeLiveBlocks(const Allocator& allocator, uint64_t bytes, size_t live) {
  constexpr size_t kLeastPairs = 50'000;
  std::vector<void*> blocks(live);
  for (void*& block : blocks) block = allocator.Allocate(bytes);
  std::mt19937_64 random(1);
  std::shuffle(blocks.begin(), blocks.end(), random);
  bool served = Replace(allocator, bytes, blocks);
  const size_t passes = (kLeastPairs + live - 1) / live;
  const Clock::time_point start = Clock::now();
  for (size_t pass = 0; pass < passes; ++pass) served = Replace(allocator, bytes, blocks) && served;
  const double ns = NanosecondsBetween(start, Clock::now());
  for (void* block : blocks) allocator.Free(block);
  if (!served) return OutOfMemory(bytes);
  return ns / static_cast<double>(passes * live);
}

struct Replacement {
  size_t place = 0;
  uint64_t bytes = 0;
};

constexpr size_t kMixedBlocks = 32;

// The same for every allocator. Sizes are uniform in their logarithm, as in programs: many small ones for each large
// one.
std::vector<Replacement> DrawMix() {
  constexpr size_t kDraws = 2048;
  constexpr double kLeastBytes = 1 << 20;
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> doublings(0, 10);
  std::vector<Replacement> draws(kDraws);
  for (size_t draw = 0; draw < kDraws; ++draw) {
    const size_t place =
        draw < kMixedBlocks ? draw : random() % kMixedBlocks;  // so that every place begins with a block
    draws[draw] = {place, static_cast<uint64_t>(kLeastBytes * std::exp2(doublings(random)))};
  }
  return draws;
}

template <typename Allocator>
class Mix {
 public:
  explicit Mix(const std::vector<HotAllocator>& by_stream) : draws_(DrawMix()), blocks_(kMixedBlocks) {
    for (const HotAllocator& allocator : by_stream) by_stream_.push_back(std::get<Allocator>(allocator));
  }
  Mix(Mix&&) = delete;
  Mix& operator=(Mix&&) = delete;
  ~Mix() {
    for (size_t place = 0; place < blocks_.size(); ++place) Of(place).Free(blocks_[place]);
  }

  // False where an allocation failed.
  bool Pass() {
    for (const Replacement& draw : draws_) {
      void*& block = blocks_[draw.place];
      if (block != nullptr) Of(draw.place).Free(block);
      block = Of(draw.place).Allocate(draw.bytes);
      if (block == nullptr) return false;
    }
    return true;
  }
  size_t replacements() const { return draws_.size(); }

 private:
  const Allocator& Of(size_t place) const { return by_stream_[place % by_stream_.size()]; }

  const std::vector<Replacement> draws_;
  std::vector<Allocator> by_stream_;
  std::vector<void*> blocks_;
};

template <typename Allocator>
Result<double> TimeMixOf(const std::vector<HotAllocator>& by_stream, double target_ns) {
  Mix<Allocator> mix(by_stream);
  const Status full(StatusCode::kOutOfMemory, "an allocator cannot hold 32 blocks of 1 MiB to 1 GiB");
  if (!mix.Pass()) return full;
  double ns = 0;
  size_t replacements = 0;
  for (const Clock::time_point start = Clock::now(); ns < target_ns; replacements += mix.replacements()) {
    if (!mix.Pass()) return full;
    ns = NanosecondsBetween(start, Clock::now());
  }
  return ns / static_cast<double>(replacements);
}

}  // namespace

Result<double> TimeMix(const std::vector<HotAllocator>& by_stream, double target_ns) {
  return std::visit([&]<typename Allocator>(const Allocator&) { return TimeMixOf<Allocator>(by_stream, target_ns); },
                    by_stream.front());
}

Result<double> TimePairs(const HotAllocator& chosen, uint64_t bytes, double target_ns) {
  return std::visit(
      [&](const auto& allocator) -> Result<double> {
        const std::optional<uint64_t> pairs = PairsIn(allocator, bytes, target_ns);
        if (!pairs) return OutOfMemory(bytes);
        const Clock::time_point start = Clock::now();
        RunPairs(allocator, bytes, *pairs);
        return NanosecondsBetween(start, Clock::now()) / static_cast<double>(*pairs);
      },
      chosen);
}

Result<double> TimeLive(const HotAllocator& chosen, uint64_t bytes, size_t live) {
  return std::visit([&](const auto& allocator) { return TimeLiveBlocks(allocator, bytes, live); }, chosen);
}

Result<double> TimeThreads(const std::vector<HotAllocator>& allocators, uint64_t bytes, double target_ns,
                           const std::function<void()>& prepare) {
  constexpr uint64_t kTurn = 64;
  std::vector<double> rates(allocators.size(), 0);
  std::atomic<bool> stop = false;
  std::atomic<bool> served = true;
  std::barrier<> ready(static_cast<ptrdiff_t>(allocators.size() + 1));
  std::vector<std::thread> threads;
  for (size_t index = 0; index < allocators.size(); ++index) {
    const auto run = [&, index](const auto& allocator) {
      if (!RunPairs(allocator, bytes, kTurn)) served = false;
      ready.arrive_and_wait();
      const Clock::time_point start = Clock::now();
      uint64_t pairs = 0;
      for (; !stop.load(std::memory_order_relaxed); pairs += kTurn) RunPairs(allocator, bytes, kTurn);
      rates[index] = static_cast<double>(pairs) / NanosecondsBetween(start, Clock::now()) * 1e9;
    };
    threads.emplace_back([&, index, run] {
      prepare();
      std::visit(run, allocators[index]);
    });
  }
  ready.arrive_and_wait();
  std::this_thread::sleep_for(std::chrono::duration<double, std::nano>(target_ns));
  stop = true;
  for (std::thread& thread : threads) thread.join();
  if (!served) return OutOfMemory(bytes);
  return std::accumulate(rates.begin(), rates.end(), 0.0);
}

}  // namespace commpool::cli
