// Each driver call in a pool's life fails once. A status, or at least a warning, tells the program, and the library
// breaks no rule of the driver.
#include <set>
#include <string>

#include "tests/pool/pool_fixture.h"
#include "tools/common/pool_invariants.h"

namespace commpool::internal::testing {
namespace {

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

class FailingCalls : public PoolTest, public ::testing::WithParamInterface<Kind> {
 protected:
  void SetUp() override {
    COMMPOOL_REQUIRE_EMULATOR("it makes driver calls fail");
    AllowLeak("");  // what the driver failed to release
  }

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
      Live(runtime, other_.get());
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

}  // namespace
}  // namespace commpool::internal::testing
