// A symmetric pool over host memory: ranks whose drivers give different handles agree on what all can make.
#include "src/library/base/bytes.h"
#include "src/library/pool/runtime.h"
#include "tests/registration/rank_group.h"

namespace commpool::internal::testing {
namespace {

// The lowest handle types that the driver of rank 1 makes host memory with. Global, because the table's functions have
// no context.
int g_lowest_refused = 0;

CUresult RefuseHostMemory(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* properties,
                          unsigned long long flags) {
  const bool on_host = properties->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
  if (on_host && properties->requestedHandleTypes >= g_lowest_refused) return CUDA_ERROR_NOT_PERMITTED;
  return SharedDriver()->cuda.cuMemCreate(handle, bytes, properties, flags);
}

class SymmetricHostLadder : public DriverTest {
 protected:
  void SetUp() override {
    ASSERT_EQ(EmulatorSetting("fabric"), "yes") << "BUILD sets it";
    Driver refusing = driver();
    refusing.cuda.cuMemCreate = RefuseHostMemory;
    runtimes_[0] = std::make_unique<Runtime>(shared_driver());
    runtimes_[1] = std::make_unique<Runtime>(std::make_shared<const Driver>(refusing));
  }

  // Makes the pool, grows it, and calls `look` on each rank.
  Statuses Grow(const std::function<void(Pool& pool)>& look) {
    return group_.Run([&](Rank& rank) {
      PoolConfiguration configuration;
      configuration.backing.placement = {
          .kind = Placement::Kind::kHostNuma, .device = rank.number, .numa_node = rank.number};
      configuration.home = rank.communicator;
      configuration.deadline_ms = 20000;
      Runtime& runtime = *runtimes_[static_cast<size_t>(rank.number)];
      Result<PoolHandle> made = runtime.CreatePool(configuration);
      if (!made.ok()) return made.status();
      Pool& pool = *runtime.pools().Find(*made).value();
      Status status = pool.mode().Reserve(32 * kMiB);
      look(pool);
      EXPECT_TRUE(pool.Close().ok());
      return status;
    });
  }

 private:
  RankGroup group_{2};
  std::unique_ptr<Runtime> runtimes_[2];
};

TEST_F(SymmetricHostLadder, AllRanksStandWhereTheLowestStands) {
  g_lowest_refused = CU_MEM_HANDLE_TYPE_FABRIC;
  ExpectOk(Grow([](Pool& pool) {
    EXPECT_NE(pool.segments().backing->Facts().what.find(", file descriptor handles"), std::string::npos)
        << pool.segments().backing->Facts().what;
  }));
}

TEST_F(SymmetricHostLadder, AllRanksHearThatOneHasNoHandles) {
  g_lowest_refused = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  ExpectFailure(Grow([](Pool&) {}), StatusCode::kNotSupported, "rank 1 cannot create: ");
}

TEST_F(SymmetricHostLadder, AllRanksHearThatOneHasOnlyPinnedMemory) {
  g_lowest_refused = CU_MEM_HANDLE_TYPE_NONE;
  ExpectFailure(Grow([](Pool&) {}), StatusCode::kNotSupported,
                "rank 1 cannot create: pinned memory of the host has no handle");
}

}  // namespace
}  // namespace commpool::internal::testing
