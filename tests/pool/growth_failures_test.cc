// A driver call fails while a pool grows: the error names the call, and the pool is as before.
#include <functional>
#include <set>
#include <string>

#include "tests/pool/pool_fixture.h"

namespace commpool::internal::testing {
namespace {

struct Step {
  const char* call;
  int skip = 0;
};

void PrintTo(const Step& step, std::ostream* stream) { *stream << step.call << ", call " << step.skip + 1; }

class FailingDriver : public PoolTest {
 protected:
  void SetUp() override { COMMPOOL_REQUIRE_EMULATOR("it makes driver calls fail"); }
  // Expects that the pool does not grow, and that the error has the code and names all parts.
  void ExpectNoGrowth(PoolHandle pool, StatusCode code, const std::vector<const char*>& parts) {
    const Status failed = TryAllocate(pool, 30 * kMiB).status();
    for (const char* const part : parts) ExpectFailure(failed, code, part);
  }
};

TEST_F(FailingDriver, TellsOfAWaitThatFailedInsteadOfMemoryThatLacks) {
  const PoolHandle pool = CreateWith({.name = "full", .limit_bytes = 32 * kMiB});
  Allocate(pool, 4 * kMiB);
  InjectedFault fault({.call = "cuCtxSynchronize", .result = CUDA_ERROR_UNKNOWN});
  ExpectNoGrowth(pool, StatusCode::kDriverError, {"cuCtxSynchronize"});
}

class FailingGrowth : public FailingDriver, public ::testing::WithParamInterface<Step> {};

TEST_P(FailingGrowth, LeavesThePoolAsBefore) {
  const PoolHandle pool = CreateWith({.name = "growing", .peers = {1}});
  Allocate(pool, 2 * kMiB);
  const std::vector<std::string> before = EmulatorLeaks();
  {
    InjectedFault fault({.call = GetParam().call, .result = CUDA_ERROR_UNKNOWN, .skip = GetParam().skip});
    ExpectNoGrowth(pool, StatusCode::kDriverError, {GetParam().call, "pool growing", "device 0"});
  }
  EXPECT_EQ(EmulatorLeaks(), before);
  EXPECT_EQ(CountersOf(pool).reserved_segments.current, 1u);
  EXPECT_EQ(CountersOf(pool).allocated_blocks.current, 1u);
  EXPECT_EQ(CountersOf(pool).failed_allocations, 1u);
  CheckInvariants(Get(pool));
  Allocate(pool, 30 * kMiB);
}

// One call of cuMemSetAccess serves the pool's device and the peer.
INSTANTIATE_TEST_SUITE_P(Vmm, FailingGrowth,
                         ::testing::Values(Step{"cuMemAddressReserve"}, Step{"cuMemMap"}, Step{"cuMemSetAccess"}));

class RefusedMemory : public FailingGrowth {};

TEST_P(RefusedMemory, IsToldAsOutOfMemoryWithATableOfPools) {
  const PoolHandle pool = Create(Configured("growing"));
  InjectedFault fault({.call = GetParam().call, .result = CUDA_ERROR_OUT_OF_MEMORY, .count = 100});
  ExpectNoGrowth(pool, StatusCode::kOutOfMemory, {GetParam().call, "30 MiB", "growing", "reserved", "largest free"});
  EXPECT_EQ(CountersOf(pool).reserved_segments.current, 0u);
}

INSTANTIATE_TEST_SUITE_P(Vmm, RefusedMemory,
                         ::testing::Values(Step{"cuMemCreate"}, Step{"cuMemAddressReserve"}, Step{"cuMemMap"},
                                           Step{"cuMemSetAccess"}));

using FailingFence = FailingDriver;

TEST_F(FailingFence, KeepsTheBlockFromEveryOtherUserUntilItIsRecorded) {
  const TestStream other;
  const PoolHandle pool = Create(Configured("fenced"));
  const CUdeviceptr address = Allocate(pool, kMiB);
  ASSERT_TRUE(runtime().RecordStream(address, other).ok());
  {
    InjectedFault fault({.call = "cuEventRecord", .result = CUDA_ERROR_UNKNOWN});
    ExpectFailure(runtime().Free(address), StatusCode::kDriverError, "cuEventRecord");
  }
  EXPECT_EQ(runtime().Free(address).code(), StatusCode::kNotFound);
  const CUdeviceptr next = Allocate(pool, kMiB);
  EXPECT_NE(next, address);
  Free(next);
  // The first records it, the second finds that it has passed.
  for (int time = 0; time < 2; ++time) {
    EXPECT_EQ(CountersOf(pool).pending_bytes, kMiB);
    EXPECT_TRUE(Get(pool).mode().Reclaim().ok());
    Synchronize(other);
  }
  EXPECT_EQ(CountersOf(pool).pending_bytes, 0u);
}

class FailingShrinking : public FailingDriver {
 protected:
  static constexpr uint64_t kPage = 2 * kMiB;
  PoolHandle CreateExpandable() { return CreateWith({.mode = Mode::kExpandable, .segment_bytes = kPage}); }
  void ExpectATrimToFail(PoolHandle pool, const Fault& fault) {
    const InjectedFault injected(fault);
    EXPECT_EQ(Get(pool).Trim(0).status().code(), StatusCode::kDriverError);
  }
  // The whole pool serves, and goes back.
  void ExpectSound(PoolHandle pool, uint64_t bytes) {
    CheckInvariants(Get(pool));
    const CUdeviceptr block = Allocate(pool, bytes);
    Fill(nullptr, block, bytes, 1);
    Free(block);
    ExpectOk(Get(pool).Trim(0).status());
    EXPECT_EQ(Reserved(pool), 0u);
  }
};

TEST_F(FailingShrinking, KeepsPagesThatCannotBeUnmappedInUse) {
  const PoolHandle pool = CreateExpandable();
  Free(Allocate(pool, 4 * kPage));
  const uint64_t reserved = Reserved(pool);
  ExpectATrimToFail(pool, {.call = "cuMemUnmap", .result = CUDA_ERROR_UNKNOWN, .skip = 1});
  EXPECT_EQ(Reserved(pool), reserved - kPage) << "the first was given back";
  ExpectSound(pool, 3 * kPage);  // asked again, the driver unmaps them
}

TEST_F(FailingShrinking, CountsASegmentThatCannotBeUnmappedUntilALaterCallReleasesIt) {
  const MemoryAccount& account = runtime().devices().Get(0).value()->account();
  const PoolHandle pool = Create(Configured("fixed"));
  const auto close = [&] { return Get(pool).Close(); };
  const auto trim = [&] { return Get(pool).Trim(0).status(); };
  const std::function<Status()> calls[] = {trim, close};
  for (const auto& call : calls) {
    ASSERT_TRUE(Get(pool).mode().Reserve(4 * kMiB).ok());
    for (int time = 0; time < 2; ++time) {
      const InjectedFault fault({.call = "cuMemUnmap", .result = CUDA_ERROR_UNKNOWN});
      EXPECT_EQ(call().code(), StatusCode::kDriverError);
      EXPECT_EQ(Reserved(pool), 0u) << "it serves nobody";
      EXPECT_EQ(account.taken(), 4 * kMiB) << "the device has so much less";
    }
    EXPECT_TRUE(call().ok());
    EXPECT_EQ(account.taken(), 0u);
  }
}

TEST_F(FailingShrinking, TellsWhatWentAndItsOwnFailureBesideARefusedSegment) {
  const PoolHandle pool = Create(Configured("fixed"));
  const auto fail = [](const char* call) { return Fault{.call = call, .result = CUDA_ERROR_UNKNOWN}; };
  ASSERT_TRUE(Get(pool).mode().Reserve(4 * kMiB).ok());
  ExpectATrimToFail(pool, fail("cuMemUnmap"));
  ASSERT_TRUE(Get(pool).mode().Reserve(8 * kMiB).ok());
  {
    const InjectedFault again(fail("cuMemUnmap"));
    const InjectedFault own(fail("cuCtxSynchronize"));
    const std::string message = Get(pool).Trim(0).status().message();
    EXPECT_NE(message.find("cuCtxSynchronize"), std::string::npos) << message;
  }
  {
    const InjectedFault again(fail("cuMemUnmap"));
    EXPECT_EQ(Get(pool).mode().ReleaseUnused(Wait::kYes), 8 * kMiB);
  }
  EXPECT_TRUE(Get(pool).Trim(0).ok());
}

TEST_F(FailingShrinking, ForgetsPagesThatTheDriverUnmappedAndDidNotTakeBack) {
  AllowLeak("physical memory");
  const PoolHandle pool = CreateExpandable();
  Free(Allocate(pool, 2 * kPage));
  ExpectATrimToFail(pool, {.call = "cuMemRelease", .result = CUDA_ERROR_UNKNOWN});
  EXPECT_EQ(Reserved(pool), kPage);
  ExpectSound(pool, 2 * kPage);
}

using UserMemory = PoolTest;

TEST_F(UserMemory, ThatIsNotAlignedIsRefusedAndGivenBack) {
  static int freed = 0;
  freed = 0;
  PoolConfiguration configuration = Configured("user");
  configuration.backing.kind = BackingKind::kUser;
  configuration.backing.user = {
      [](ptrdiff_t, int, CUstream_st*, void*) { return reinterpret_cast<void*>(uintptr_t{0x10000001}); },
      [](void*, ptrdiff_t, int, CUstream_st*, void*) { ++freed; }, nullptr};
  const PoolHandle pool = Create(configuration);
  const Status failed = TryAllocate(pool, kMiB).status();
  EXPECT_NE(failed.message().find("aligned to 512 bytes"), std::string::npos) << failed.message();
  EXPECT_EQ(freed, 1);
  EXPECT_EQ(CountersOf(pool).reserved_segments.current, 0u);
}

// Each driver call in a pool's life fails once. A status, or at least a warning, tells the program, and the library
// breaks no rule of the driver.

constexpr const char* kCalls[] = {
#define COMMPOOL_CUDA(name, version) #name,
#include "src/library/driver/cuda_functions.inc"
#undef COMMPOOL_CUDA
};

// These may fail silently.
const std::set<std::string> kSilent = {
    // Questions: an unknown answer counts as "missing".
    "cuDeviceGetAttribute", "cuDeviceGetPCIBusId", "cuDeviceCanAccessPeer", "cuMulticastGetGranularity", "cuMemGetInfo",
    "cuMemGetAllocationPropertiesFromHandle",
    // Whether other devices are there, and whether a stream captures: an unknown answer counts as yes.
    "cuDeviceGetCount", "cuStreamIsCapturing",
    // A call that needs the context fails then.
    "cuCtxGetCurrent", "cuCtxSetCurrent",
    // Calls that a capture forbids then fail, where a capture is open.
    "cuThreadExchangeStreamCaptureMode",
    // These are tried again: for a less shareable handle, or at the next call.
    "cuMemCreate", "cuEventQuery"};

enum class Kind { kFixed, kExpandable, kCuda, kHost };

class FailingCalls : public FailingDriver, public ::testing::WithParamInterface<Kind> {
 protected:
  FailingCalls() { AllowLeak(""); }  // what the driver failed to release

  PoolConfiguration Configuration() const {
    PoolConfiguration configuration = Configured("failing");
    if (GetParam() == Kind::kExpandable) configuration.mode = Mode::kExpandable;
    if (GetParam() == Kind::kCuda) configuration.backing.kind = BackingKind::kCuda;
    if (GetParam() == Kind::kHost) configuration.backing.placement = {Placement::Kind::kHostNuma, 0, 0};
    if (GetParam() != Kind::kHost) configuration.peers = {1};
    return configuration;
  }

  const TestStream other_;
  std::vector<Status> told_;  // from each call of the program
  std::string warnings_;
  std::string why_;  // the pool's memory is nothing better
  bool Tell(const Status& status) {
    told_.push_back(status);
    return status.ok();
  }
  void UseTwoStreams(Runtime& runtime, PoolHandle pool, CUstream other) {
    const Result<CUdeviceptr> first = runtime.AllocateFrom(pool, 3 * kMiB, nullptr);
    if (Tell(first.status())) {
      Tell(runtime.RecordStream(*first, other));
      Tell(runtime.Free(*first));
    }
    const Result<CUdeviceptr> second = runtime.AllocateFrom(pool, 40 * kMiB, other);
    if (Tell(second.status())) Tell(runtime.Free(*second));
  }
  void Live(Runtime& runtime, CUstream other) {
    const Result<PoolHandle> made = runtime.CreatePool(Configuration());
    if (!Tell(made.status())) return;
    const std::shared_ptr<Pool> pool = runtime.pools().Find(*made).value();
    why_ = pool->segments().backing->Facts().why;
    UseTwoStreams(runtime, *made, other);
    Tell(pool->mode().Reserve(64 * kMiB));
    Tell(pool->blocks().WaitForDevice());
    if (GetParam() == Kind::kFixed || GetParam() == Kind::kExpandable) {
      Tell(pool->segments().peers.Grant({2}));
      Tell(pool->segments().peers.Revoke({2}));
    }
    UseTwoStreams(runtime, *made, nullptr);
    Tell(runtime.ReleaseStream(other));
    Tell(pool->Trim(0).status());
    CheckInvariants(*pool);
    Tell(pool->Close());
    Tell(runtime.DestroyPool(*made));
  }
  // How often the call was made.
  uint64_t LiveOnce(const char* call) {
    told_.clear();
    why_.clear();
    ::testing::internal::CaptureStderr();
    const uint64_t before = CallCount(call);
    {
      Runtime runtime(shared_driver());
      Live(runtime, other_);
    }
    warnings_ = ::testing::internal::GetCapturedStderr();
    return CallCount(call) - before;
  }
  bool WasTold(const std::string& call) const {
    for (const Status& status : told_) {
      if (status.message().find(call) != std::string::npos) return true;
    }
    return warnings_.find(call + " ") != std::string::npos || why_.find(call) != std::string::npos;
  }
};

TEST_P(FailingCalls, AreToldByTheirNames) {
  for (const char* const call : kCalls) {
    if (kSilent.contains(call)) continue;
    const int calls = static_cast<int>(LiveOnce(call));
    for (const Status& status : told_) ASSERT_TRUE(status.ok()) << status.message();
    for (int skip = 0; skip < calls; ++skip) {
      const InjectedFault fault({.call = call, .result = CUDA_ERROR_UNKNOWN, .skip = skip});
      const bool failed = LiveOnce(call) > static_cast<uint64_t>(skip);
      EXPECT_TRUE(WasTold(call) || !failed) << call << ", call " << skip + 1 << " of " << calls;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Pools, FailingCalls,
                         ::testing::Values(Kind::kFixed, Kind::kExpandable, Kind::kCuda, Kind::kHost));

// After an error that lost the context every call returns the first error and calls the driver no more.

class StickyError : public PoolTest {
 protected:
  void SetUp() override {
    COMMPOOL_REQUIRE_EMULATOR("it makes driver calls fail");
    AllowLeak("");  // the memory stays until the process ends
    address_ = Allocate(pool_, kMiB);
    live_ = Allocate(pool_, kMiB);
    ASSERT_TRUE(runtime().RecordStream(address_, stream_).ok());
    InjectedFault fault({.call = "cuEventRecord", .result = CUDA_ERROR_ILLEGAL_ADDRESS});
    first_ = runtime().Free(address_);
    ASSERT_EQ(first_.code(), StatusCode::kDriverError) << first_.message();
  }
  void TearDown() override {
    EXPECT_TRUE(runtime().ReleaseStream(stream_).ok());
    EndRuntime();
  }

  const TestStream stream_;
  const PoolHandle pool_ = Create(Configured("lost"));
  CUdeviceptr address_ = 0;
  CUdeviceptr live_ = 0;
  Status first_;
};

TEST_F(StickyError, IsReturnedByEveryLaterCall) {
  const std::string first = first_.message();
  EXPECT_NE(first.find("CUDA_ERROR_ILLEGAL_ADDRESS"), std::string::npos) << first;
  const uint64_t calls = CallCount("*");
  EXPECT_EQ(TryAllocate(pool_, kMiB).status().message(), first);
  EXPECT_EQ(Get(pool_).mode().Reserve(kMiB).message(), first);
  EXPECT_EQ(Get(pool_).Close().message(), first);
  EXPECT_EQ(CallCount("*"), calls);
}

TEST_F(StickyError, OfADeviceConcernsItsOtherPools) {
  EXPECT_EQ(TryAllocate(Create(Configured("other")), kMiB).status().message(), first_.message());
}

TEST_F(StickyError, LeavesOtherDevicesAlone) {
  COMMPOOL_REQUIRE_DEVICES(2);
  const PoolHandle far = Create(Configured("far", 1));
  Free(Allocate(far, kMiB));
  EXPECT_TRUE(Get(far).Trim(0).ok());
}

TEST_F(StickyError, LetsBlocksBeFreedWithoutADriverCall) {
  const uint64_t calls = CallCount("*");
  Free(live_);
  EXPECT_EQ(CallCount("*"), calls);
}

TEST_F(StickyError, LetsDestructorsCallNothing) {
  const uint64_t calls = CallCount("*");
  Free(live_);
  Destroy(pool_);
  EXPECT_EQ(CallCount("*"), calls);
}

// A process that ends may free blocks of destroyed pools after the driver has shut down.
using ShutDownDriver = PoolTest;

TEST_F(ShutDownDriver, IsLeftAloneWithoutAWordWhereTheLastBlocksAreFreed) {
  COMMPOOL_REQUIRE_EMULATOR("it makes driver calls fail");
  AllowLeak("");
  const PoolHandle pool = Create(Configured("orphan"));
  const CUdeviceptr first = Allocate(pool, kMiB);
  const CUdeviceptr second = Allocate(pool, 64 * kMiB);
  Destroy(pool);
  const InjectedFault question({.call = "cuStreamIsCapturing", .result = CUDA_ERROR_DEINITIALIZED});
  const InjectedFault fault({.call = "cuStreamQuery", .result = CUDA_ERROR_DEINITIALIZED});
  ::testing::internal::CaptureStderr();
  Free(first);
  const uint64_t calls = CallCount("*");
  Free(second);
  EXPECT_EQ(CallCount("*"), calls);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EndRuntime();
}

}  // namespace
}  // namespace commpool::internal::testing
