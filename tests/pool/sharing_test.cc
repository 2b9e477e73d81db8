// Other processes reach blocks by descriptors of their segments.
#include <fcntl.h>
#include <unistd.h>

#include <string>

#include "tests/pool/pool_fixture.h"
#include "tools/common/sleep_alone.h"

namespace commpool::internal::testing {
namespace {

bool IsOpen(int descriptor) { return fcntl(descriptor, F_GETFD) != -1; }

class Sharing : public PoolTest {
 protected:
  PoolHandle CreateWith(BackingKind backing, Mode mode = Mode::kFixed) {
    PoolConfiguration configuration = Configured("sharer");
    configuration.backing.kind = backing;
    configuration.mode = mode;
    return Create(configuration);
  }
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
    EXPECT_EQ(cuda().cuMemcpyDtoHAsync(&value, range.address() + offset, 1, stream_.get()), CUDA_SUCCESS);
    EXPECT_EQ(cuda().cuStreamSynchronize(stream_.get()), CUDA_SUCCESS);
    return value;
  }

  TestStream stream_;
};

TEST_F(Sharing, TakesOneDescriptorForAllBlocksOfASegment) {
  const PoolHandle pool = CreateWith(BackingKind::kVmm);
  const CUdeviceptr first = runtime().AllocateFrom(pool, 3000, stream_.get()).value();
  const CUdeviceptr second = runtime().AllocateFrom(pool, 3000, stream_.get()).value();
  Fill(stream_.get(), second, 3000, 7);
  EXPECT_EQ(cuda().cuStreamSynchronize(stream_.get()), CUDA_SUCCESS);
  const SharedSegment shared = Get(pool).segments().exporter.Share(first).value();
  const SharedSegment again = Get(pool).segments().exporter.Share(second + 1000).value();
  EXPECT_EQ(again.descriptor, shared.descriptor);
  EXPECT_EQ(again.address, shared.address);
  EXPECT_EQ(ReadByDescriptor(again, second + 2999 - again.address), 7);
  for (const CUdeviceptr block : {first, second}) EXPECT_TRUE(runtime().Free(block).ok());
}

TEST_F(Sharing, EndsWithTheSegment) {
  const PoolHandle pool = CreateWith(BackingKind::kVmm);
  const CUdeviceptr block = runtime().AllocateFrom(pool, 3000, stream_.get()).value();
  const int descriptor = Get(pool).segments().exporter.Share(block).value().descriptor;
  EXPECT_TRUE(runtime().Free(block).ok());
  EXPECT_TRUE(IsOpen(descriptor)) << "the segment is there";
  EXPECT_GT(Get(pool).Trim(0).value(), 0u);
  EXPECT_FALSE(IsOpen(descriptor));
}

TEST_F(Sharing, KeepsThePoolAwakeUntilTheBlockIsFreed) {
  const PoolHandle pool = CreateWith(BackingKind::kVmm);
  const CUdeviceptr block = runtime().AllocateFrom(pool, 3000, stream_.get()).value();
  const CUdeviceptr other = runtime().AllocateFrom(pool, 3000, stream_.get()).value();
  EXPECT_TRUE(Get(pool).segments().exporter.Share(block).ok());
  const Status refused = SleepAlone(Get(pool), {});
  ExpectFailure(refused, StatusCode::kFailedPrecondition, "other processes may use blocks");
  EXPECT_EQ(refused.message().find("pool sharer"), refused.message().rfind("pool sharer")) << refused.message();
  EXPECT_FALSE(Get(pool).basis().life.asleep());
  EXPECT_TRUE(runtime().Free(block).ok());
  EXPECT_TRUE(SleepAlone(Get(pool), {}).ok());
  ExpectFailure(Get(pool).segments().exporter.Share(other).status(), StatusCode::kFailedPrecondition, "is asleep");
  EXPECT_TRUE(WakeAlone(Get(pool)).ok());
  EXPECT_TRUE(runtime().Free(other).ok());
}

// An open descriptor keeps memory: one that stayed open in a sleep would keep what the sleep gives back.
TEST_F(Sharing, TakesANewDescriptorAfterASleep) {
  const PoolHandle pool = CreateWith(BackingKind::kVmm);
  const CUdeviceptr block = runtime().AllocateFrom(pool, 3000, stream_.get()).value();
  const int before = Get(pool).segments().exporter.Share(block).value().descriptor;
  EXPECT_TRUE(runtime().Free(block).ok());
  EXPECT_TRUE(SleepAlone(Get(pool), {}).ok());
  EXPECT_FALSE(IsOpen(before));
  EXPECT_TRUE(WakeAlone(Get(pool)).ok());
  const CUdeviceptr again = runtime().AllocateFrom(pool, 3000, stream_.get()).value();
  Fill(stream_.get(), again, 3000, 9);
  EXPECT_EQ(cuda().cuStreamSynchronize(stream_.get()), CUDA_SUCCESS);
  const SharedSegment shared = Get(pool).segments().exporter.Share(again).value();
  EXPECT_EQ(ReadByDescriptor(shared, again - shared.address), 9);
  EXPECT_TRUE(runtime().Free(again).ok());
}

TEST_F(Sharing, RefusesASleepBeforeItDropsRetainedCopies) {
  const PoolHandle pool = CreateWith(BackingKind::kVmm);
  const CUdeviceptr block = runtime().AllocateFrom(pool, 3000, stream_.get()).value();
  Get(pool).segments().kept.SetRetain(Retain::kCopies);
  EXPECT_TRUE(SleepAlone(Get(pool), {.keep = Keep::kHost}).ok());
  EXPECT_TRUE(WakeAlone(Get(pool)).ok());
  EXPECT_TRUE(Get(pool).segments().exporter.Share(block).ok());
  ExpectFailure(SleepAlone(Get(pool), {}), StatusCode::kFailedPrecondition, "other processes may use blocks");
  EXPECT_TRUE(Get(pool).segments().kept.Find(block, 3000).ok());
  EXPECT_TRUE(runtime().Free(block).ok());
  EXPECT_TRUE(runtime().DestroyPool(pool).ok());
}

// Its block in a thread's cache would be handed out while the other process uses it: nobody would ask the pool.
TEST_F(Sharing, SendsTheFreeOfABlockToThePool) {
  const PoolHandle pool = CreateWith(BackingKind::kVmm);
  const CUdeviceptr block = runtime().AllocateFrom(pool, 3000, stream_.get()).value();
  EXPECT_TRUE(Get(pool).segments().exporter.Share(block).ok());
  EXPECT_TRUE(runtime().Free(block).ok());
  EXPECT_EQ(CountersOf(pool).cached_bytes, 0u);
}

TEST_F(Sharing, GoesThroughCudasIpcWhereMemoryHasNoHandle) {
  const PoolHandle pool = CreateWith(BackingKind::kCuda);
  const CUdeviceptr block = runtime().AllocateFrom(pool, 3000, stream_.get()).value();
  const SharedSegment shared = Get(pool).segments().exporter.Share(block).value();
  EXPECT_EQ(shared.descriptor, -1);
  EXPECT_LE(shared.address, block);
  EXPECT_TRUE(runtime().Free(block).ok());
}

TEST_F(Sharing, RefusesMemoryThatMovesOrIsNoLiveBlock) {
  const PoolHandle moving = CreateWith(BackingKind::kVmm, Mode::kExpandable);
  const CUdeviceptr block = runtime().AllocateFrom(moving, 3000, stream_.get()).value();
  ExpectFailure(Get(moving).segments().exporter.Share(block).status(), StatusCode::kNotSupported,
                "an expandable pool moves its pages");
  EXPECT_TRUE(runtime().Free(block).ok());
  EXPECT_TRUE(runtime().DestroyPool(moving).ok());
  const PoolHandle fixed = CreateWith(BackingKind::kVmm);
  const CUdeviceptr freed = runtime().AllocateFrom(fixed, 3000, stream_.get()).value();
  EXPECT_TRUE(runtime().Free(freed).ok());
  EXPECT_EQ(Get(fixed).segments().exporter.Share(freed).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace commpool::internal::testing
