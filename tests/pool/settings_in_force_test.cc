// Pools follow COMMPOOL_CONF: each setting that does more than set one option, and each strategy.
#include <string>
#include <utility>

#include "src/library/pool/growing/growing_mode.h"
#include "src/library/pool/settings/settings.h"
#include "tests/pool/pool_fixture.h"

namespace commpool::internal::testing {
namespace {

class SettingsInForce : public PoolTest {
 protected:
  void Open(const std::string& text) { RestartRuntime(Settings::Parse(text).value()); }
  PoolHandle Create(PoolConfiguration configuration) {
    ExpectOk(runtime().settings().ApplyTo(configuration));
    return PoolTest::Create(std::move(configuration));
  }
  PoolHandle Create(const char* name) { return Create(ConfiguredWith({.name = name, .streams = Streams::kMayDie})); }
  // Needs memory where unused pages lie before a live block.
  void AllocateBesideAHole(PoolHandle pool) {
    const CUdeviceptr unused = Allocate(pool, 48 * kMiB);
    Allocate(pool, 4 * kMiB);
    Free(unused);
    Allocate(pool, 56 * kMiB);
  }
};

TEST_F(SettingsInForce, ReachTheDefaultPool) {
  Open("default.limit:4MiB,alignment:4K");
  const PoolHandle pool = runtime().DefaultPool(0).value();
  EXPECT_EQ(Get(pool).basis().configuration.alignment_bytes, 4096u);
  EXPECT_EQ(runtime().Allocate(0, 8 * kMiB, nullptr).status().code(), StatusCode::kOutOfMemory);
}

TEST_F(SettingsInForce, AreNamedWhereTheDefaultPoolCannotBeMade) {
  Open("default.backing:cuda,default.mode:expandable");
  ExpectFailure(runtime().DefaultPool(0).status(), StatusCode::kInvalidArgument,
                "COMMPOOL_CONF says default.mode:expandable");
}

TEST_F(SettingsInForce, ThatContradictEachOtherInTheDefaultPoolAreNamed) {
  Open("default.limit:4MiB,default.segment:8MiB");
  ExpectFailure(runtime().DefaultPool(0).status(), StatusCode::kInvalidArgument, "default.segment:8MiB");
}

TEST_F(SettingsInForce, LimitEachDevice) {
  Open("device_limit:32MiB");
  Allocate(Create("first"), 24 * kMiB);
  ExpectFailure(TryAllocate(Create("second"), 10 * kMiB).status(), StatusCode::kOutOfMemory,
                "the limit of device 0, 32 MiB");
}

TEST_F(SettingsInForce, LimitEachDeviceToAShareOfItsMemory) {
  Open("per_process_memory_fraction:0.5");
  const MemoryAccount& account = runtime().devices().Get(0).value()->account();
  EXPECT_EQ(account.limit(), account.capacity() / 2);
}

// A program's function that has memory only from its Nth call on.
struct LateMemory {
  int calls = 0;
  int empty_calls = 0;

  static void* Allocate(ptrdiff_t bytes, int, CUstream_st*, void* context) {
    auto& late = *static_cast<LateMemory*>(context);
    if (late.calls++ < late.empty_calls) return nullptr;
    CUdeviceptr address = 0;
    EXPECT_EQ(SharedDriver()->cuda.cuMemAlloc(&address, static_cast<size_t>(bytes)), CUDA_SUCCESS);
    return reinterpret_cast<void*>(address);
  }
  static void Free(void* pointer, ptrdiff_t, int, CUstream_st*, void*) {
    EXPECT_EQ(SharedDriver()->cuda.cuMemFree(reinterpret_cast<CUdeviceptr>(pointer)), CUDA_SUCCESS);
  }
};

PoolConfiguration Late(const char* name, LateMemory& memory) {
  PoolConfiguration configuration;
  configuration.name = name;
  configuration.backing.kind = BackingKind::kUser;
  configuration.backing.user = {LateMemory::Allocate, LateMemory::Free, &memory};
  configuration.given = COMMPOOL_OPTION_BACKING;
  return configuration;
}

TEST_F(SettingsInForce, RetryAnAllocationAsOftenAsNmallocSays) {
  Open("patient.nmalloc:3");
  LateMemory measured{.empty_calls = INT_MAX};
  EXPECT_EQ(TryAllocate(Create(Late("hasty", measured)), kMiB).status().code(), StatusCode::kOutOfMemory);
  ASSERT_GT(measured.calls, 0);

  LateMemory memory{.empty_calls = 2 * measured.calls};  // as many as two attempts make
  const PoolHandle patient = Create(Late("patient", memory));
  Allocate(patient, kMiB);
  EXPECT_EQ(memory.calls, 2 * measured.calls + 1);
  memory = {.empty_calls = INT_MAX};
  EXPECT_EQ(TryAllocate(patient, 64 * kMiB).status().code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(memory.calls, 3 * measured.calls) << "three attempts, not four";
}

TEST_F(SettingsInForce, GiveBackWhatLiesUnusedBeyondTheCollectionThreshold) {
  Open("device_limit:128MiB,collects.garbage_collection_threshold:0.5");
  for (const char* const name : {"collects", "keeps"}) {
    const PoolHandle pool = Create(name);
    const CUdeviceptr first = Allocate(pool, 30 * kMiB);
    const CUdeviceptr second = Allocate(pool, 30 * kMiB);
    FreeAll({first, second});
    const CUdeviceptr used = Allocate(pool, 40 * kMiB);  // one must go: 70 MiB would be more than half of 128
    EXPECT_EQ(Reserved(pool), (name == std::string("collects") ? 40 : 70) * kMiB) << name;
    Free(used);
    EXPECT_TRUE(Get(pool).Trim(0).ok());
  }
}

TEST_F(SettingsInForce, MovePagesBeyondTheCollectionThresholdUnderAnyPressure) {
  COMMPOOL_REQUIRE_EMULATOR("it knows which pages lie where");
  Open("device_limit:256MiB,mode:expandable,moves:under_pressure,collects.garbage_collection_threshold:0.25");
  for (const char* const name : {"collects", "keeps"}) {
    const PoolHandle pool = Create(name);
    AllocateBesideAHole(pool);
    const bool collects = name == std::string("collects");
    EXPECT_EQ(CountersOf(pool).moved_bytes > 0, collects) << name;
  }
}

TEST_F(SettingsInForce, HeuristicPoolsMovePagesOnlyUnderPressure) {
  Open("heuristic");
  const PoolHandle pool = Create("gradients");
  EXPECT_EQ(Get(pool).basis().configuration.mode, Mode::kExpandable);
  AllocateBesideAHole(pool);
  EXPECT_EQ(CountersOf(pool).moved_bytes, 0u);
}

TEST_F(SettingsInForce, AreNamedWhereAPoolCannotBeRegisteredForThem) {
  Open("heuristic");
  ExpectFailure(Get(Create("gradients")).mode().RegisterWith(nullptr), StatusCode::kNotSupported,
                "Make a fixed pool; of its options COMMPOOL_CONF set heuristic");
}

TEST_F(SettingsInForce, CachingPoolsKeepWhatIsFree) {
  Open("release_threshold:0,gradients.caching_allocator");
  const PoolHandle pool = Create("gradients");
  Free(Allocate(pool, 48 * kMiB));
  Allocate(pool, 512);
  EXPECT_GE(Reserved(pool), 48 * kMiB);
}

TEST_F(SettingsInForce, PooledPoolsTakeLargePieces) {
  Open("pooled");
  const PoolHandle pool = Create("gradients");
  Allocate(pool, 20 * kMiB);
  EXPECT_EQ(Reserved(pool), 256 * kMiB);
  Allocate(pool, 200 * kMiB);
  EXPECT_EQ(Reserved(pool), 256 * kMiB) << "both lie in one piece";
}

TEST(GrowingEngineOptions, HaveTheGranularityOfTheMemory) {
  PoolConfiguration configuration;
  configuration.segment_bytes = 6 * kMiB;
  const engine::EngineOptions options = GrowingEngineOptions(configuration, 4 * kMiB);
  EXPECT_EQ(options.granularity, 4 * kMiB);
  EXPECT_EQ(options.page_bytes, 8 * kMiB) << "whole granules";
}

}  // namespace
}  // namespace commpool::internal::testing
