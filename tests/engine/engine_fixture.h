// An engine under test: whoever asks for it finds its books in order.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "src/library/base/bytes.h"
#include "src/library/engine/expandable_engine.h"
#include "tests/base/expect_status.h"
#include "tests/engine/engine_calls.h"
#include "tools/common/engine_invariants.h"

namespace commpool::internal::engine {

inline constexpr Address kBase = 0x7f0000000000;
inline constexpr StreamKey kStream = 1;
inline constexpr StreamKey kOther = 2;
inline constexpr StreamKey kThird = 3;

using Waits = std::vector<StreamUse>;

template <typename Engine>
class EngineTest : public ::testing::Test {
 protected:
  template <typename... Options>
  explicit EngineTest(const Options&... options) : engine_(std::in_place, options...) {}
  ~EngineTest() override { CheckInvariants(*engine_); }

  // Each call checks what the one before it left.
  Engine& engine() {
    if (checks_each_call_) CheckInvariants(*engine_);
    return *engine_;
  }
  // Another engine, with these options.
  template <typename... Options>
  void Restart(const Options&... options) {
    engine_.emplace(options...);
  }

  // Nothing where the engine wants to grow. A symmetric engine serves from any free memory.
  std::optional<Served> Ask(uint64_t bytes, StreamKey stream = kStream, Reuse reuse = Reuse::kSameStream,
                            Part part = kCommonPart) {
    const Result<Outcome> outcome = [&] {
      if constexpr (requires { engine().Allocate(bytes, stream, reuse, part); }) {
        return engine().Allocate(bytes, stream, reuse, part);
      } else {
        return engine().Allocate(bytes, stream, part);
      }
    }();
    EXPECT_TRUE(outcome.ok()) << outcome.status().message();
    if (std::holds_alternative<Grow>(*outcome)) return std::nullopt;
    return std::get<Served>(*outcome);
  }
  // 0 where the engine wants to grow.
  Address TryServe(uint64_t bytes, StreamKey stream = kStream, Reuse reuse = Reuse::kSameStream,
                   Part part = kCommonPart) {
    const std::optional<Served> served = Ask(bytes, stream, reuse, part);
    return served ? served->address : 0;
  }
  Address Serve(uint64_t bytes, StreamKey stream = kStream, Reuse reuse = Reuse::kSameStream) {
    const Address address = TryServe(bytes, stream, reuse);
    EXPECT_NE(address, 0u) << bytes << " bytes for stream " << stream;
    return address;
  }
  // The streams whose fences the block now misses.
  std::vector<StreamKey> Free(Address address) {
    const Result<Freed> freed = engine().Free(address);
    EXPECT_TRUE(freed.ok()) << freed.status().message();
    return freed.ok() ? StreamsOf(freed->missing) : std::vector<StreamKey>();
  }
  void FreeAll(std::initializer_list<Address> blocks) {
    for (const Address block : blocks) Free(block);
  }
  void Record(Address address, StreamKey stream, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    ExpectOk(engine().RecordStream(address, stream), file, line);
  }
  bool Attach(StreamKey stream, Fence fence, Address address = kBase) {
    return engine().AttachFence(MissingOf(*engine_, address, stream), fence);
  }
  void WaitForDevice() { engine().DeviceIdle(0, engine().Now()); }

  // The part's capture, which had these streams, has ended, and its graph is gone.
  void EndPart(Part part, const std::set<StreamKey>& captured = {}) {
    engine().ClosePart(part, engine().Now(), captured);
    engine().ReleasePart(part);
  }

  Counters counters() { return engine().counters(); }
  uint64_t Reserved() { return counters().reserved_bytes.current; }
  // The bytes to grow by before a request can be served; 0 where there is enough.
  uint64_t GrowthFor(uint64_t bytes, StreamKey stream = kStream, Reuse reuse = Reuse::kSameStream,
                     Part part = kCommonPart) {
    return engine().GrowthFor(bytes, stream, reuse, part).value().bytes;
  }

  std::optional<Engine> engine_;
  bool checks_each_call_ = true;  // false for many thousands of calls: they are checked at their end
};

// An expandable engine, and its growth in one call.
class ExpandableTest : public EngineTest<ExpandableEngine> {
 protected:
  using EngineTest::EngineTest;

  // Options that keep small and large blocks apart.
  static EngineOptions Apart(uint64_t page_bytes, const Slack& slack = {}, uint64_t granularity = 2 * kMiB,
                             uint64_t segment_bytes = 0) {
    return {.granularity = granularity,
            .spaces = Spaces::kApart,
            .choice = Choice::kFirstFit,
            .page_bytes = page_bytes,
            .slack = slack,
            .segment_bytes = segment_bytes};
  }
  void Claim(const Expansion& plan) { ASSERT_TRUE(engine().Claim(plan)); }
  void CarryOut(const Expansion& plan) {
    Claim(plan);
    engine().Complete(plan);
  }
  // Serves from new pages where free memory does not serve.
  Address Make(uint64_t bytes, StreamKey stream = kStream) {
    if (const Address address = TryServe(bytes, stream)) return address;
    CarryOut(engine().Plan(bytes, stream, Donors::kNone).value());
    return Serve(bytes, stream);
  }
  void RemoveIdlePages(uint64_t bytes) {
    for (const SegmentRange& page : engine().ClaimIdlePages(bytes)) engine().RemovePage(page);
  }
};

}  // namespace commpool::internal::engine
