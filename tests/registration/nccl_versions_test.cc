// Pools and registrations on machines with another NCCL, or with drivers that give less: BUILD runs each suite on its
// machines.
#include "tests/registration/registration_fixture.h"
#include "tests/registration/symmetric_fixture.h"

namespace commpool::internal::testing {
namespace {

// A symmetric pool of two ranks; rank 1 may have another driver.
class TwoRanks : public DriverTest {
 protected:
  explicit TwoRanks(std::shared_ptr<const Driver> of_rank_1 = SharedDriver())
      : runtimes_{Runtime(SharedDriver()), Runtime(std::move(of_rank_1))} {}
  void SetUp() override {
    COMMPOOL_REQUIRE_NCCL();
    COMMPOOL_REQUIRE_DEVICES(2);
    group_.emplace(2);
  }
  void TearDown() override { group_.reset(); }

  // Makes the pool on both ranks, grows it, calls `look` and closes it.
  Statuses Grow(
      Placement::Kind kind, const std::function<void(Pool&)>& look = [](Pool&) {}) {
    return group_->Run([&](Rank& rank) {
      PoolConfiguration configuration;
      configuration.backing.placement = {
          .kind = kind, .device = rank.number, .numa_node = kind == Placement::Kind::kHostNuma ? rank.number : -1};
      configuration.home = rank.communicator;
      configuration.deadline_ms = 20000;
      Runtime& runtime = runtimes_[rank.index()];
      const Result<PoolHandle> made = runtime.CreatePool(configuration);
      if (!made.ok()) return made.status();
      Pool& pool = *runtime.pools().Find(*made).value();
      Status status = pool.mode().Reserve(32 * kMiB);
      EXPECT_EQ(pool.Statistics().registered_segments, status.ok() ? 1u : 0u);
      look(pool);
      EXPECT_TRUE(pool.Close().ok());
      return status;
    });
  }
  void ExpectNoWindows(const Statuses& statuses, const std::string& need = "") {
    ExpectFailureNaming(statuses, StatusCode::kNotSupported,
                        {"rank 0 cannot create: windows", need, FormatNcclVersion(driver().nccl.version)});
  }

 private:
  std::optional<RankGroup> group_;
  Runtime runtimes_[2];
};

class NcclVersions : public TwoRanks {
 protected:
  bool HasWindows() const { return driver().nccl.version >= 22700; }
  bool HasHostWindows() const { return driver().nccl.version >= 23003; }
};

TEST_F(NcclVersions, WindowsBeginWith2_27) {
  const uint64_t mappings = CallCount("cuMemMap");
  const Statuses statuses = Grow(Placement::Kind::kDevice);
  if (!HasWindows()) return ExpectNoWindows(statuses, "need NCCL 2.27");
  ExpectOk(statuses);
  // Before 2.30.3 a window spans one handle, so a segment of any size has one.
  EXPECT_EQ(CallCount("cuMemMap") - mappings, OnEmulator() ? 2u : 0u);
}

TEST_F(NcclVersions, WindowsOverHostMemoryBeginWith2_30_3) {
  const Statuses statuses = Grow(Placement::Kind::kHostNuma);
  if (HasHostWindows()) return ExpectOk(statuses);
  ExpectNoWindows(statuses, HasWindows() ? "need NCCL 2.30.3" : "");
}

// An NCCL without windows.
class OldNccl : public RegistrationTest {};

TEST_F(OldNccl, RefusesWindowsAndNamesBothVersions) {
  const SegmentToRegister segment = MakeSegment(0);
  UnfinishedRange none = nullptr;
  const Status status =
      RegisterRange(driver(), Connect(), RegistrationKind::kWindow, segment.address, segment.bytes, kDeadlineMs, none)
          .status();
  ExpectFailure(status, StatusCode::kNotSupported, "2.27");
  ExpectFailure(status, StatusCode::kNotSupported, "2.19.3");
}

TEST_F(OldNccl, RegistersLocally) {
  WindowBook windows;
  RegistrationSet set(driver(), RegistrationKind::kLocal, kDeadlineMs, windows);
  ExpectOk({set.Add(Connect(), {MakeSegment(0)})});
  EXPECT_EQ(set.registrations(), 1u);
  ExpectOk({set.RemoveAll()});
}

class OldNcclOfRanks : public TwoRanks {};

TEST_F(OldNcclOfRanks, MakesNoSymmetricPool) { ExpectNoWindows(Grow(Placement::Kind::kDevice), "2.19.3"); }

// NCCL accepts a window's registration and makes no window.
class NullWindows : public SymmetricTest {};

TEST_F(NullWindows, AreNotSupportedOnAllAndNothingIsKept) {
  ExpectOk(Create());
  ExpectFailureNaming(Reserve(2 * kMiB), StatusCode::kNotSupported,
                      {"registering a segment of 2 MiB failed on rank 0: NCCL 2.30.7", "made no window"});
  ExpectOnAll(0, 0);
}

// The lowest handle types that the driver of rank 1 makes host memory with. Global, because the table's functions have
// no context.
int g_lowest_refused = 0;

CUresult RefuseHostMemory(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* properties,
                          unsigned long long flags) {
  const bool on_host = properties->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
  if (on_host && properties->requestedHandleTypes >= g_lowest_refused) return CUDA_ERROR_NOT_PERMITTED;
  return SharedDriver()->cuda.cuMemCreate(handle, bytes, properties, flags);
}

std::shared_ptr<const Driver> RefusingDriver() {
  auto refusing = std::make_shared<Driver>(*SharedDriver());
  refusing->cuda.cuMemCreate = RefuseHostMemory;
  return refusing;
}

// Over host memory, ranks whose drivers give different handles agree on what all can make.
class SymmetricHostLadder : public TwoRanks {
 protected:
  SymmetricHostLadder() : TwoRanks(RefusingDriver()) {}
  void SetUp() override {
    ASSERT_EQ(EmulatorSetting("fabric"), "yes") << "BUILD sets it";
    TwoRanks::SetUp();
  }
};

TEST_F(SymmetricHostLadder, AllRanksStandWhereTheLowestStands) {
  g_lowest_refused = CU_MEM_HANDLE_TYPE_FABRIC;
  ExpectOk(Grow(Placement::Kind::kHostNuma, [](Pool& pool) {
    EXPECT_NE(pool.segments().backing->Facts().what.find(", file descriptor handles"), std::string::npos)
        << pool.segments().backing->Facts().what;
  }));
}

TEST_F(SymmetricHostLadder, AllRanksHearThatOneHasNoHandles) {
  g_lowest_refused = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  ExpectFailure(Grow(Placement::Kind::kHostNuma), StatusCode::kNotSupported, "rank 1 cannot create: ");
}

TEST_F(SymmetricHostLadder, AllRanksHearThatOneHasOnlyPinnedMemory) {
  g_lowest_refused = CU_MEM_HANDLE_TYPE_NONE;
  ExpectFailure(Grow(Placement::Kind::kHostNuma), StatusCode::kNotSupported,
                "rank 1 cannot create: pinned memory of the host has no handle to import: asked for, or all that");
}

}  // namespace
}  // namespace commpool::internal::testing
