// A pool announces that memory sleeps. Then it may be unmapped under a graph; a replay of the graph is a mistake
// meanwhile, and so is a captured collective over newly mapped memory.
#include <memory>

#include "src/emulator/runtime_extension.h"
#include "tests/driver/capturing.h"
#include "tests/emulator/cuda/machine_fixture.h"

namespace commpool::internal::testing {
namespace {

class SleepingMemory : public Capturing<MachineTest> {
 protected:
  explicit SleepingMemory(int device = 0) : Capturing(device), device_(device) { Map(); }
  ~SleepingMemory() override {
    cuda().cuCtxSynchronize();
    Announce(1);  // its graphs are destroyed after it
  }

  commpoolEmulatorRange range() const { return {addresses_.address(), kUnit}; }
  void Map() {
    const CUmemLocation location{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device_};
    physical_ = PhysicalMemory::Create(driver(), kUnit, PropertiesAt(location)).value();
    mapping_ = Mapping::Map(driver(), addresses_.address(), physical_).value();
    EXPECT_TRUE(mapping_.SetAccess(location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE).ok());
  }
  void Sleep() {
    Announce(1);
    EXPECT_TRUE(mapping_.Release().ok());
    EXPECT_TRUE(physical_.Release().ok());
  }
  void Wake() {
    Map();
    Announce(0);
  }
  CUgraphExec Capture(const std::function<CUresult(CUstream)>& work) {
    const CUstream stream = BeginOnNewStream(CU_STREAM_CAPTURE_MODE_RELAXED);
    EXPECT_EQ(work(stream), CUDA_SUCCESS);
    return Instantiate(End(stream));
  }

  const CUstream stream_ = MakeStream();

 private:
  void Announce(int asleep) { COMMPOOL_EXTENSION(commpoolEmulatorSegmentSleeps)(addresses_.address(), kUnit, asleep); }

  const int device_;
  AddressRange addresses_ = AddressRange::Reserve(driver(), kUnit, 0).value();
  PhysicalMemory physical_;
  Mapping mapping_;
};

TEST_F(SleepingMemory, MayBeNamedByAGraphThatIsReplayedOnceItIsBack) {
  const CUgraphExec graph = Capture([&](CUstream stream) { return Launch(stream, {range()}); });
  Sleep();
  EXPECT_EQ(TakeReports(), std::vector<std::string>());
  Wake();
  EXPECT_EQ(cuda().cuGraphLaunch(graph, stream_), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(TakeReports(), std::vector<std::string>());
}

TEST_F(SleepingMemory, IsReportedWhereACapturedCollectiveFindsItMappedAnew) {
  static const commpoolEmulatorReplay kReplay = {[](void* context) { return context; }, [](void*) {}, 1, 1};
  int replays = 0;
  const commpoolEmulatorRange ranges[] = {range()};
  const commpoolEmulatorAccess access = {
      .name = "ncclAllReduce", .reads = nullptr, .read_count = 0, .writes = ranges, .write_count = 1, .duration_us = 1};
  const auto start = [](void* context, commpoolEmulatorOperation operation, const void* const*, void* const*,
                        double start_us) {
    ++*static_cast<int*>(context);
    COMMPOOL_EXTENSION(commpoolEmulatorComplete)(operation, start_us + 1, CUDA_SUCCESS);
  };
  const CUgraphExec graph = Capture([&](CUstream stream) {
    return COMMPOOL_EXTENSION(commpoolEmulatorCapture)(stream, &access, start, &replays, &kReplay);
  });
  EXPECT_EQ(cuda().cuGraphLaunch(graph, stream_), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(TakeReports(), std::vector<std::string>());
  Sleep();
  Wake();
  EXPECT_EQ(cuda().cuGraphLaunch(graph, stream_), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(replays, 2);
  EXPECT_TRUE(
      AnyContains(TakeReports(), "a graph replays a collective over memory that was mapped anew: ncclAllReduce"));
}

TEST_F(SleepingMemory, KeepsItsBlocksAndIsCopiedOverTheirEnds) {
  const auto announce = COMMPOOL_EXTENSION(commpoolEmulatorBlockAllocated);
  announce(range().address, 4096, stream_, "weights");
  announce(range().address + 4096, 4096, stream_, "weights");
  Sleep();
  Map();  // not awake yet: the pool copies back what it kept
  ASSERT_EQ(cuda().cuMemsetD8Async(range().address, 1, 8192, stream_), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(TakeReports(), std::vector<std::string>());
  COMMPOOL_EXTENSION(commpoolEmulatorSegmentSleeps)(range().address, kUnit, 0);
  ASSERT_EQ(cuda().cuMemsetD8Async(range().address, 1, 8192, stream_), CUDA_SUCCESS);
  EXPECT_TRUE(AnyContains(TakeReports(), "access beyond a block"));
}

TEST_F(SleepingMemory, IsNamedWithItsPoolAndTheLineThatUsesIt) {
  COMMPOOL_EXTENSION(commpoolEmulatorBlockAllocated)(range().address, 4096, stream_, "weights");
  Sleep();
  const char* const before = COMMPOOL_EXTENSION(commpoolEmulatorIssuedAt)("serve.py:7");
  EXPECT_NE(Launch(stream_, {range()}), CUDA_SUCCESS);
  COMMPOOL_EXTENSION(commpoolEmulatorIssuedAt)(before);
  const std::vector<std::string> reports = TakeReports();
  EXPECT_TRUE(AnyContains(reports, "their pool is asleep, wake() it first (block of 4096 bytes"));
  EXPECT_TRUE(AnyContains(reports, "by pool weights); issued at serve.py:7"));
  Wake();
}

class LostSleepingMemory : public SleepingMemory {
 protected:
  LostSleepingMemory() : SleepingMemory(1) {}
};

TEST_F(LostSleepingMemory, IsReportedWhereAGraphIsReplayedMeanwhile) {
  const CUgraphExec graph = Capture([&](CUstream stream) { return Launch(stream, {range()}); });
  Sleep();
  EXPECT_EQ(cuda().cuGraphLaunch(graph, stream_), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuStreamSynchronize(stream_), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_TRUE(AnyContains(TakeReports(), "a graph is replayed over memory that sleeps: test kernel"));
}

}  // namespace
}  // namespace commpool::internal::testing
