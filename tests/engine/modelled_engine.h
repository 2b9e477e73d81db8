// Makes random calls of an engine and compares it with a model: slow and obvious, of what an engine must guarantee,
// which ranges are live, and which streams may still use each freed byte. It checks every served block.
// Single-threaded.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "src/library/engine/types.h"
#include "tests/engine/engine_calls.h"
#include "tools/common/engine_invariants.h"

namespace commpool::internal::engine {

struct ModelBlock {
  uint64_t bytes = 0;
  uint64_t requested = 0;
  StreamKey stream = 0;
  std::vector<StreamKey> others;
};

class Model {
 public:
  // What is wrong with serving the block; "" where it is right.
  std::string Serve(const Served& served, uint64_t requested, StreamKey stream) {
    const Address end = served.address + served.bytes;
    const auto next = live_.lower_bound(served.address);
    if (next != live_.end() && next->first < end) return "overlaps the next live block";
    if (next != live_.begin() && std::prev(next)->first + std::prev(next)->second.bytes > served.address) {
      return "overlaps the previous live block";
    }
    for (const PastUse& use : uses_) {
      const bool overlaps = use.begin < end && served.address < use.end;
      if (overlaps && use.stream != stream && !Covers(served.waits, use)) {
        return "lacks a wait for stream " + std::to_string(use.stream);
      }
    }
    Cut(served.address, end);
    live_[served.address] = {served.bytes, requested, stream, {}};
    return "";
  }

  void Record(Address address, StreamKey stream) {
    ModelBlock& block = live_.at(address);
    const bool known =
        stream == block.stream || std::find(block.others.begin(), block.others.end(), stream) != block.others.end();
    if (!known) block.others.push_back(stream);
  }

  // The streams that must record a fence now, ascending.
  std::vector<StreamKey> Free(Address address, Moment moment) {
    ModelBlock block = live_.at(address);
    live_.erase(address);
    std::sort(block.others.begin(), block.others.end());
    uses_.push_back({address, address + block.bytes, block.stream, kNoFence, address, false, moment});
    for (const StreamKey stream : block.others) {
      uses_.push_back({address, address + block.bytes, stream, kNoFence, address, true, moment});
    }
    return block.others;
  }

  void Attach(Address address, StreamKey stream, Fence fence) {
    for (PastUse& use : uses_) {
      if (use.missing && use.freed_at_address == address && use.stream == stream) {
        use.missing = false;
        use.fence = fence;
      }
    }
  }

  void FencePassed(Fence fence) {
    std::erase_if(uses_, [&](const PastUse& use) { return use.fence == fence; });
  }

  void DeviceIdle(Moment moment) {
    std::erase_if(uses_, [&](const PastUse& use) { return use.moment <= moment; });
  }

  // What is wrong with taking the range's memory away; "" where it is right.
  std::string TakeAway(const SegmentRange& range) const {
    const Address end = range.address + range.bytes;
    const auto next = live_.lower_bound(end);
    if (next != live_.begin() && std::prev(next)->first + std::prev(next)->second.bytes > range.address) {
      return "a live block lies on it";
    }
    for (const PastUse& use : uses_) {
      if (use.begin < end && range.address < use.end) return "stream " + std::to_string(use.stream) + " may use it";
    }
    return "";
  }

  void StreamIdle(StreamKey stream, Moment moment) {
    std::erase_if(uses_, [&](const PastUse& use) { return use.stream == stream && use.moment <= moment; });
  }

  const std::map<Address, ModelBlock>& live() const { return live_; }

  uint64_t LiveBytes() const {
    uint64_t bytes = 0;
    for (const auto& [address, block] : live_) bytes += block.bytes;
    return bytes;
  }

 private:
  struct PastUse {
    Address begin = 0;
    Address end = 0;
    StreamKey stream = 0;
    Fence fence = kNoFence;
    Address freed_at_address = 0;
    bool missing = false;
    Moment moment = 0;
  };

  static bool Covers(const std::vector<StreamUse>& waits, const PastUse& use) {
    return std::any_of(waits.begin(), waits.end(), [&](const StreamUse& wait) {
      return wait.stream == use.stream && (wait.fence == kNoFence || (wait.fence == use.fence && !use.missing));
    });
  }

  // The range's new owner has waited, so past uses remain only outside of the range.
  void Cut(Address begin, Address end) {
    std::vector<PastUse> left;
    for (const PastUse& use : uses_) {
      for (const auto& [from, to] :
           {std::pair(use.begin, std::min(use.end, begin)), std::pair(std::max(use.begin, end), use.end)}) {
        if (from >= to) continue;
        left.push_back(use);
        left.back().begin = from;
        left.back().end = to;
      }
    }
    uses_ = std::move(left);
  }

  std::map<Address, ModelBlock> live_;
  std::vector<PastUse> uses_;
};

template <typename Engine>
class ModelledEngine {
 protected:
  // Calls come from streams 1 to `streams`.
  ModelledEngine(Engine engine, uint64_t seed, StreamKey streams)
      : random_(seed), engine_(std::move(engine)), streams_(streams) {}

  uint64_t Below(uint64_t limit) { return random_() % limit; }
  StreamKey AnyStream() { return 1 + Below(streams_); }
  Address AnyLive() {
    return std::next(model_.live().begin(), static_cast<int64_t>(Below(model_.live().size())))->first;
  }

  void Free(Address address) {
    const Result<Freed> freed = engine_.Free(address);
    ASSERT_TRUE(freed.ok());
    EXPECT_EQ(StreamsOf(freed->missing), model_.Free(address, engine_.Now()));
    missing_.Add(freed->missing);
    EXPECT_FALSE(engine_.Free(address).ok());
  }

  void FreeAny() {
    if (!model_.live().empty()) Free(AnyLive());
  }

  void RecordStream(Address address) {
    const StreamKey stream = AnyStream();
    ASSERT_TRUE(engine_.RecordStream(address, stream).ok());
    model_.Record(address, stream);
  }

  void RecordAny() {
    if (!model_.live().empty()) RecordStream(AnyLive());
  }

  void AttachFence(uint64_t place) {
    const MissingFences::Attached attached = missing_.Attach(engine_, place);
    model_.Attach(attached.missing.address, attached.missing.stream, attached.fence);
  }

  void AttachAnyFence() {
    if (!missing_.empty()) AttachFence(Below(missing_.size()));
  }

  void AttachEveryFence() {
    while (!missing_.empty()) AttachFence(0);
  }

  void PassAnyFence() {
    const std::vector<Fence> pending = engine_.PendingFences();
    EXPECT_TRUE(std::is_sorted(pending.begin(), pending.end()));
    if (pending.empty()) return;
    const Fence fence = pending[Below(pending.size())];
    engine_.FencePassed(fence);
    model_.FencePassed(fence);
  }

  void DeviceIdle(Moment moment) {
    engine_.DeviceIdle(0, moment);
    model_.DeviceIdle(moment);
  }

  // Frees every block behind its fences, until nobody uses anything.
  void ComeToRest() {
    while (!model_.live().empty()) FreeAny();
    while (!missing_.empty()) AttachAnyFence();
    DeviceIdle(engine_.Now());
  }

  // Checks what must hold for every engine between two calls.
  void CheckAgainstModel() const {
    CheckInvariants(engine_);
    const Counters counters = engine_.counters();
    ASSERT_EQ(counters.allocated_blocks.current, model_.live().size());
    ASSERT_EQ(counters.allocated_bytes.current, model_.LiveBytes());
    ASSERT_EQ(counters.free_bytes + counters.allocated_bytes.current, counters.reserved_bytes.current);
  }

  std::mt19937_64 random_;
  Engine engine_;
  Model model_;
  MissingFences missing_;

 private:
  StreamKey streams_;
};

}  // namespace commpool::internal::engine
