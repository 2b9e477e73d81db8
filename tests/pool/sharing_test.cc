// Other processes reach blocks by descriptors of their segments.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/pool/pool_fixture.h"
#include "tools/common/sleep_alone.h"

namespace commpool::internal::testing {
namespace {

bool IsOpen(int descriptor) { return fcntl(descriptor, F_GETFD) != -1; }

class Sharing : public PoolTest {
 protected:
  // The byte at an offset of the shared memory, as an importer maps it.
  uint8_t ReadByDescriptor(const SharedSegment& shared, uint64_t offset) {
    CUmemGenericAllocationHandle handle = 0;
    const auto imported = reinterpret_cast<void*>(static_cast<uintptr_t>(shared.descriptor));
    EXPECT_EQ(cuda().cuMemImportFromShareableHandle(&handle, imported, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
              CUDA_SUCCESS);
    const PhysicalMemory memory(driver(), {handle, shared.bytes});
    const AddressRange range = AddressRange::Reserve(driver(), shared.bytes, 0).value();
    const Mapping mapping = Mapping::Map(driver(), range.address(), memory).value();
    const CUmemAccessDesc access{{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    EXPECT_EQ(cuda().cuMemSetAccess(range.address(), shared.bytes, &access, 1), CUDA_SUCCESS);
    uint8_t value = 0;
    EXPECT_EQ(cuda().cuMemcpyDtoHAsync(&value, range.address() + offset, 1, stream_), CUDA_SUCCESS);
    Synchronize(stream_);
    return value;
  }

  CUdeviceptr AllocateIn(PoolHandle pool) { return Allocate(pool, 3000, stream_); }
  Result<SharedSegment> Share(CUdeviceptr block) { return Get(pool_).segments().exporter.Share(block); }

  const TestStream stream_;
  const PoolHandle pool_ = Create(Configured("sharer"));
};

TEST_F(Sharing, TakesOneDescriptorForAllBlocksOfASegment) {
  const CUdeviceptr first = AllocateIn(pool_);
  const CUdeviceptr second = AllocateIn(pool_);
  Fill(stream_, second, 3000, 7);
  Synchronize(stream_);
  const SharedSegment shared = Share(first).value();
  const SharedSegment again = Share(second + 1000).value();
  EXPECT_EQ(again.descriptor, shared.descriptor);
  EXPECT_EQ(again.address, shared.address);
  EXPECT_EQ(ReadByDescriptor(again, second + 2999 - again.address), 7);
}

TEST_F(Sharing, EndsWithTheSegment) {
  const CUdeviceptr block = AllocateIn(pool_);
  const int descriptor = Share(block).value().descriptor;
  Free(block);
  EXPECT_TRUE(IsOpen(descriptor)) << "the segment is there";
  EXPECT_GT(Get(pool_).Trim(0).value(), 0u);
  EXPECT_FALSE(IsOpen(descriptor));
}

// An open descriptor keeps memory: a data loader's would keep what its parent gives back.
TEST_F(Sharing, LeavesNoDescriptorToAForkedChild) {
  const CUdeviceptr block = AllocateIn(pool_);
  Fill(stream_, block, 3000, 7);
  Synchronize(stream_);
  const SharedSegment shared = Share(block).value();
  const Result<SharedMemory::Exported> sent = Get(pool_).segments().exporter.Export(block, std::nullopt);
  const pid_t child = fork();
  if (child == 0) {
    const auto is_nothing = [](int descriptor) {
      struct stat about = {}, nothing = {};
      return fstat(descriptor, &about) + stat("/dev/null", &nothing) == 0 && about.st_rdev == nothing.st_rdev;
    };
    _exit((is_nothing(shared.descriptor) ? 1 : 0) + (is_nothing(sent->descriptor.get()) ? 2 : 0));
  }
  int result = 0;
  ASSERT_EQ(waitpid(child, &result, 0), child);
  EXPECT_EQ(WEXITSTATUS(result), 3);
  EXPECT_EQ(ReadByDescriptor(shared, block - shared.address), 7) << "the parent keeps its own";
}

TEST_F(Sharing, KeepsThePoolAwakeUntilTheBlockIsFreed) {
  const CUdeviceptr block = AllocateIn(pool_);
  const CUdeviceptr other = AllocateIn(pool_);
  EXPECT_TRUE(Share(block).ok());
  const Status refused = SleepAlone(Get(pool_), {});
  ExpectFailure(refused, StatusCode::kFailedPrecondition, "other processes may use blocks");
  EXPECT_EQ(refused.message().find("pool sharer"), refused.message().rfind("pool sharer")) << refused.message();
  EXPECT_FALSE(Get(pool_).basis().life.asleep());
  Free(block);
  EXPECT_TRUE(SleepAlone(Get(pool_), {}).ok());
  ExpectFailure(Share(other).status(), StatusCode::kFailedPrecondition, "is asleep");
  EXPECT_TRUE(WakeAlone(Get(pool_)).ok());
}

// An open descriptor keeps memory: one that stayed open in a sleep would keep what the sleep gives back.
TEST_F(Sharing, TakesANewDescriptorAfterASleep) {
  const CUdeviceptr block = AllocateIn(pool_);
  const int before = Share(block).value().descriptor;
  Free(block);
  ExpectOk(SleepAlone(Get(pool_), {}));
  EXPECT_FALSE(IsOpen(before));
  ExpectOk(WakeAlone(Get(pool_)));
  const CUdeviceptr again = AllocateIn(pool_);
  Fill(stream_, again, 3000, 9);
  Synchronize(stream_);
  const SharedSegment shared = Share(again).value();
  EXPECT_EQ(ReadByDescriptor(shared, again - shared.address), 9);
}

TEST_F(Sharing, RefusesASleepBeforeItDropsRetainedCopies) {
  const CUdeviceptr block = AllocateIn(pool_);
  Get(pool_).segments().kept.SetRetain(Retain::kCopies);
  EXPECT_TRUE(SleepAlone(Get(pool_), {.keep = Keep::kHost}).ok());
  EXPECT_TRUE(WakeAlone(Get(pool_)).ok());
  EXPECT_TRUE(Share(block).ok());
  ExpectFailure(SleepAlone(Get(pool_), {}), StatusCode::kFailedPrecondition, "other processes may use blocks");
  EXPECT_TRUE(Get(pool_).segments().kept.Find(block, 3000).ok());
  Free(block);
  Destroy(pool_);
}

// Its block in a thread's cache would be handed out while the other process uses it: nobody would ask the pool.
TEST_F(Sharing, SendsTheFreeOfABlockToThePool) {
  const CUdeviceptr block = AllocateIn(pool_);
  EXPECT_TRUE(Share(block).ok());
  Free(block);
  EXPECT_EQ(CountersOf(pool_).cached_bytes, 0u);
}

TEST_F(Sharing, GoesThroughCudasIpcWhereMemoryHasNoHandle) {
  const PoolHandle cuda = CreateWith({.kind = BackingKind::kCuda});
  const CUdeviceptr block = AllocateIn(cuda);
  const SharedSegment shared = Get(cuda).segments().exporter.Share(block).value();
  EXPECT_EQ(shared.descriptor, -1);
  EXPECT_LE(shared.address, block);
}

TEST_F(Sharing, RefusesMemoryThatMovesOrIsNoLiveBlock) {
  const PoolHandle moving = CreateWith({.mode = Mode::kExpandable});
  const CUdeviceptr block = AllocateIn(moving);
  ExpectFailure(Get(moving).segments().exporter.Share(block).status(), StatusCode::kNotSupported,
                "an expandable pool moves its pages");
  const CUdeviceptr freed = AllocateIn(pool_);
  Free(freed);
  EXPECT_EQ(Share(freed).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace commpool::internal::testing
