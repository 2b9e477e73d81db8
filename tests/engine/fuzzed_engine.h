// Reads bytes as calls of an engine: the calls that caching, expandable and symmetric engines share. After each call
// the books must balance, and no two live blocks may overlap. Single-threaded.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "src/library/base/bytes.h"
#include "src/library/base/check.h"
#include "src/library/engine/size_policy.h"
#include "src/library/engine/types.h"
#include "tests/engine/engine_calls.h"
#include "tools/common/engine_invariants.h"

namespace commpool::internal::engine {

// A fuzzer's input, with zeros after its end.
class FuzzedBytes {
 public:
  FuzzedBytes(const uint8_t* data, size_t size) : next_(data), end_(data + size) {}

  bool empty() const { return next_ == end_; }
  uint8_t Next() { return empty() ? 0 : *next_++; }
  bool Bit() { return Next() % 2 == 1; }
  StreamKey Stream() { return 1 + Next() % 3; }

  // From one byte to 32 MiB; seldom so much that it overflows.
  uint64_t Size() {
    const uint8_t scale = Next();
    const uint8_t value = Next();
    if (scale == 0xff) return UINT64_MAX - (uint64_t{value} << 14);
    return (uint64_t{value} + 1) << scale % 18;
  }

 private:
  const uint8_t* next_;
  const uint8_t* end_;
};

template <typename Engine>
class FuzzedEngine {
 public:
  FuzzedEngine(Engine engine, FuzzedBytes& bytes) : bytes_(bytes), engine_(std::move(engine)) {}
  virtual ~FuzzedEngine() = default;

  // The calls that all engines have come first, by their numbers.
  void Play() {
    using Call = void (FuzzedEngine::*)();
    static constexpr Call kCalls[] = {&FuzzedEngine::Allocate,    &FuzzedEngine::Allocate,
                                      &FuzzedEngine::Allocate,    &FuzzedEngine::Free,
                                      &FuzzedEngine::Free,        &FuzzedEngine::RecordStream,
                                      &FuzzedEngine::AttachFence, &FuzzedEngine::PassFence,
                                      &FuzzedEngine::DeviceIdle,  &FuzzedEngine::PassWrongAddress,
                                      &FuzzedEngine::ForgetStream};
    while (!bytes_.empty()) {
      const uint8_t call = bytes_.Next();
      if (call % 16 < std::size(kCalls)) {
        (this->*kCalls[call % 16])();
      } else {
        PlayOwn(call / 16);
      }
      CheckInvariants(engine_);
      COMMPOOL_CHECK(engine_.counters().allocated_blocks.current == live_.size(), "live blocks got lost");
    }
  }

 protected:
  virtual Result<Outcome> TryAllocate(uint64_t bytes, StreamKey stream) = 0;
  virtual void MakeRoom(const Grow& grow, uint64_t bytes, StreamKey stream) = 0;
  virtual void PlayOwn(uint8_t call) = 0;

  std::optional<Address> AnyLive() {
    if (live_.empty()) return std::nullopt;
    return std::next(live_.begin(), static_cast<int64_t>(bytes_.Next() % live_.size()))->first;
  }

  void NoteServed(const Served& served) {
    const auto next = live_.lower_bound(served.address);
    COMMPOOL_CHECK(next == live_.end() || next->first - served.address >= served.bytes, "two live blocks overlap");
    const bool clear = next == live_.begin() || served.address - std::prev(next)->first >= std::prev(next)->second;
    COMMPOOL_CHECK(clear, "two live blocks overlap");
    live_.emplace(served.address, served.bytes);
  }

  void Allocate() {
    const uint64_t bytes = bytes_.Size();
    const StreamKey stream = bytes_.Stream();
    const Result<Outcome> outcome = TryAllocate(bytes, stream);
    if (!outcome.ok()) return;
    if (const Served* served = std::get_if<Served>(&*outcome)) {
      NoteServed(*served);
    } else if (std::get<Grow>(*outcome).bytes <= kGiB) {
      MakeRoom(std::get<Grow>(*outcome), bytes, stream);
    }
  }

  void Free() {
    const std::optional<Address> address = AnyLive();
    if (!address) return;
    live_.erase(*address);
    const Result<Freed> freed = engine_.Free(*address);
    COMMPOOL_CHECK(freed.ok(), "a live block is not found");
    missing_.Add(freed->missing);
  }

  void RecordStream() {
    const std::optional<Address> address = AnyLive();
    if (!address) return;
    COMMPOOL_CHECK(engine_.RecordStream(*address, bytes_.Stream()).ok(), "a live block is not found");
  }

  void DeviceIdle() { engine_.DeviceIdle(0, bytes_.Bit() ? engine_.Now() : engine_.Now() / 2); }

  void ForgetStream() { engine_.ForgetStream(bytes_.Stream()); }

  void AttachFence() {
    if (!missing_.empty()) missing_.Attach(engine_, bytes_.Next() % missing_.size());
  }

  void PassFence() {
    const std::vector<Fence> pending = engine_.PendingFences();
    // May name a fence that has passed already.
    engine_.FencePassed(pending.empty() ? missing_.last() + 1 : pending[bytes_.Next() % pending.size()]);
  }

  void PassWrongAddress() {
    const Address address = live_.empty() ? bytes_.Next() : live_.begin()->first + 1 + bytes_.Next();
    COMMPOOL_CHECK(!engine_.Free(address).ok(), "a block is found where none begins");
    COMMPOOL_CHECK(!engine_.RecordStream(address, 1).ok(), "a block is found where none begins");
  }

  // For a segment or a territory; some touch each other.
  SegmentRange NewRange(uint64_t bytes) {
    const SegmentRange range{next_address_, bytes};
    next_address_ += bytes + (bytes_.Bit() ? 64 * kMiB : 0);
    return range;
  }

  FuzzedBytes& bytes_;
  Engine engine_;
  std::map<Address, uint64_t> live_;
  MissingFences missing_;
  Address next_address_ = kGiB;
};

}  // namespace commpool::internal::engine
