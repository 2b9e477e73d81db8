// Functions that frameworks link and that the oldest nccl.h we build with does not declare.
#include <dlfcn.h>

#include <string>

#include "tests/emulator/nccl/harness.h"

namespace commpool::internal::testing {
namespace {

class FrameworkFunctions : public EmulatedNccl {
 protected:
  // From the same library as Api().
  template <typename Function>
  static Function* Find(const char* name) {
    Dl_info library = {};
    EXPECT_NE(dladdr(reinterpret_cast<void*>(Api().ncclCommDestroy), &library), 0);
    void* const handle = dlopen(library.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    EXPECT_NE(handle, nullptr);
    return reinterpret_cast<Function*>(dlsym(handle, name));
  }
};

TEST_F(FrameworkFunctions, AWindowKnowsItsBuffer) {
  const auto buffer_of = Find<ncclResult_t(ncclComm_t, ncclWindow_t, void**)>("ncclWinGetUserPtr");
  ASSERT_NE(buffer_of, nullptr);
  RunRanks(2, [&](Rank& rank, const DeviceMemory& memory) {
    const auto window = ScopedWindow(rank, memory, NCCL_WIN_COLL_SYMMETRIC);
    void* buffer = nullptr;
    EXPECT_EQ(buffer_of(rank.comm, window.get(), &buffer), ncclSuccess);
    EXPECT_EQ(buffer, memory.data());
    EXPECT_EQ(buffer_of(rank.comm, reinterpret_cast<ncclWindow_t>(&buffer), &buffer), ncclInvalidArgument);
  });
}

TEST_F(FrameworkFunctions, ACommunicatorIsMadeFromSeveralIds) {
  const auto initialize =
      Find<ncclResult_t(ncclComm_t*, int, int, int, ncclUniqueId*, ncclConfig_t*)>("ncclCommInitRankScalable");
  ASSERT_NE(initialize, nullptr);
  ncclUniqueId ids[2] = {NewId(), NewId()};
  ncclComm_t comms[2] = {};
  ASSERT_EQ(Api().ncclGroupStart(), ncclSuccess);
  for (int rank = 0; rank < 2; ++rank) {
    const CurrentDevice current(rank);
    EXPECT_EQ(initialize(&comms[rank], 2, rank, 2, ids, nullptr), ncclSuccess);
  }
  ASSERT_EQ(Api().ncclGroupEnd(), ncclSuccess);
  for (ncclComm_t comm : comms) {
    EXPECT_EQ(SizeOf(comm), 2);
    EXPECT_EQ(Api().ncclCommDestroy(comm), ncclSuccess);
  }
  EXPECT_EQ(initialize(&comms[0], 2, 0, 3, ids, nullptr), ncclInvalidArgument) << "more ids than ranks";
}

TEST_F(FrameworkFunctions, OthersSayWhyTheyAreRefused) {
  for (const char* name : {"ncclDevCommCreate", "ncclDevCommDestroy", "ncclGetLsaMultimemDevicePointer",
                           "ncclGetPeerDevicePointer", "ncclPutSignal", "ncclSignal", "ncclWaitSignal"}) {
    const auto refused = Find<ncclResult_t()>(name);
    ASSERT_NE(refused, nullptr) << name;
    EXPECT_EQ(refused(), ncclInvalidUsage) << name << ": whatever its arguments are";
    EXPECT_NE(LastError().find(std::string(name) + ": the emulator"), std::string::npos);
  }
}

}  // namespace
}  // namespace commpool::internal::testing
