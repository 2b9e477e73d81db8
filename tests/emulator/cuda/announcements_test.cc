// What pools announce to the emulated driver: their blocks, and that memory sleeps. Then it may be unmapped under a
// graph; a replay of the graph is a mistake meanwhile, and so is a captured collective over newly mapped memory.
#include "src/emulator/runtime_extension.h"
#include "tests/driver/capturing.h"
#include "tests/emulator/cuda/machine_fixture.h"

namespace commpool::internal::testing {
namespace {

class AnnouncedBlocks : public MachineTest {
 protected:
  void Announce(uint64_t offset, uint64_t bytes, const char* pool = "grads") {
    COMMPOOL_EXTENSION(commpoolEmulatorBlockAllocated)(segment_ + offset, bytes, stream_, pool);
  }
  void AnnounceFree(uint64_t offset) { COMMPOOL_EXTENSION(commpoolEmulatorBlockFreed)(segment_ + offset); }
  void Write(CUstream stream, uint64_t offset, uint64_t bytes, const char* file = __builtin_FILE(),
             int line = __builtin_LINE()) {
    const ::testing::ScopedTrace caller(file, line, "Write");
    EXPECT_EQ(Launch(stream, {{segment_ + offset, bytes}}), CUDA_SUCCESS);
  }

  const CUdeviceptr segment_ = Allocate();
  const CUstream stream_ = MakeStream();
};

TEST_F(AnnouncedBlocks, AreUsedInSilenceWhileTheyLive) {
  Announce(0, 4096);
  Write(stream_, 0, 4096);
  AnnounceFree(0);
  EXPECT_EQ(TakeReports(), std::vector<std::string>()) << "what was submitted before the free is in order";
}

TEST_F(AnnouncedBlocks, AreReportedWhenUsedAfterTheirFree) {
  Announce(0, 4096);
  AnnounceFree(0);
  Write(stream_, 100, 1);
  ExpectOneReport({"use of a freed block: ", "test kernel of stream ", "block of 4096 bytes allocated as #",
                   "by pool grads, freed", "issued at "});
  Announce(0, 4096);
  Write(stream_, 100, 1);
  EXPECT_EQ(TakeReports(), std::vector<std::string>()) << "allocated again";
}

TEST_F(AnnouncedBlocks, AreReportedWhenAUseRunsPastTheirEnd) {
  Announce(0, 4096);
  Announce(4096, 4096, "moments");
  ASSERT_EQ(cuda().cuMemsetD8Async(segment_, 0, 4097, stream_), CUDA_SUCCESS);
  ExpectOneReport({"access beyond a block: cuMemsetD8Async", "by pool moments"});
}

TEST_F(AnnouncedBlocks, AreNamedWhereTheirReuseIsARace) {
  Announce(0, 4096);
  Write(stream_, 0, 4096);
  AnnounceFree(0);
  Announce(0, 512, "moments");
  Write(MakeStream(), 0, 512);
  cuda().cuCtxSynchronize();
  ExpectOneReport({"race: ", "by pool grads, freed)", "by pool moments)"});
}

// PyTorch frees a block and hands it out again before its stream has work: another stream, which waited since, uses it.
TEST_F(AnnouncedBlocks, AreJudgedByTheirUsesOnceTheyServeAgain) {
  const auto begins = [&](uint64_t offset, uint64_t bytes) {
    COMMPOOL_EXTENSION(commpoolEmulatorBlockBegins)(segment_ + offset, bytes, stream_, 0, "PyTorch");
  };
  const auto ends = [&](uint64_t offset) {
    COMMPOOL_EXTENSION(commpoolEmulatorBlockEnds)(segment_ + offset, stream_, 0);
  };
  begins(0, 512);
  begins(4096, 512);
  begins(8192, 512);
  Write(stream_, 0, 512);
  ends(0);
  ends(8192);
  begins(0, 512);
  CUstream const other = MakeStream();
  Order(stream_, other);
  Write(other, 0, 512);
  Write(other, 8192, 512);
  Gate gate(stream_);
  Write(stream_, 4096, 512);
  EXPECT_EQ(cuda().cuStreamSynchronize(other), CUDA_SUCCESS);
  gate.Open();
  cuda().cuCtxSynchronize();
  ExpectOneReport({"the possible reuse of a freed block"});
}

// A pool that is PyTorch's whole allocator is in PyTorch's list of blocks too.
TEST_F(AnnouncedBlocks, AreTheirPoolsWhereAFrameworkTellsOfThemToo) {
  Announce(0, 4096);
  const auto begins = COMMPOOL_EXTENSION(commpoolEmulatorBlockBegins);
  begins(segment_, 4096, stream_, 0, "PyTorch");
  AnnounceFree(0);
  Write(stream_, 0, 1);
  ExpectOneReport({"by pool grads, freed"});
  begins(segment_, 4096, stream_, 0, "PyTorch");
  Write(stream_, 0, 1);
  EXPECT_EQ(TakeReports(), std::vector<std::string>()) << "the pool's block has ended";
}

TEST_F(AnnouncedBlocks, AreForgottenWithTheirSegment) {
  const CUdeviceptr segment = NewMemory();
  COMMPOOL_EXTENSION(commpoolEmulatorBlockAllocated)(segment, 512, nullptr, nullptr);
  COMMPOOL_EXTENSION(commpoolEmulatorBlockFreed)(segment);
  EXPECT_EQ(Launch(stream_, {{segment, 512}}), CUDA_SUCCESS);
  EXPECT_EQ(TakeReports().size(), 1u);
  ASSERT_EQ(cuda().cuMemFree(segment), CUDA_SUCCESS);
  // Where the same addresses come again they are new.
  const CUdeviceptr again = NewMemory();
  EXPECT_EQ(Launch(stream_, {{again, 512}}), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuMemFree(again), CUDA_SUCCESS);
}

class SleepingMemory : public Capturing<MachineTest> {
 protected:
  explicit SleepingMemory(int device = 0) : Capturing(device), device_(device) { Map(); }
  ~SleepingMemory() override {
    cuda().cuCtxSynchronize();
    Announce(1);  // its graphs are destroyed after it
  }

  commpoolEmulatorRange range() const { return {addresses_.address(), kUnit}; }
  void Map() {
    const CUmemAllocationProp properties = Properties(device_);
    physical_ = PhysicalMemory::Create(driver(), kUnit, properties).value();
    mapping_ = Mapping::Map(driver(), addresses_.address(), physical_).value();
    EXPECT_TRUE(mapping_.SetAccess(properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE).ok());
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

  // What the wait for it returns.
  CUresult Replay(CUgraphExec graph) {
    EXPECT_EQ(cuda().cuGraphLaunch(graph, stream_), CUDA_SUCCESS);
    return cuda().cuStreamSynchronize(stream_);
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
  EXPECT_EQ(Replay(graph), CUDA_SUCCESS);
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
  EXPECT_EQ(Replay(graph), CUDA_SUCCESS);
  EXPECT_EQ(TakeReports(), std::vector<std::string>());
  Sleep();
  Wake();
  EXPECT_EQ(Replay(graph), CUDA_SUCCESS);
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
  ExpectOneReport(
      {"their pool is asleep, wake() it first (block of 4096 bytes", "by pool weights); issued at serve.py:7"});
  Wake();
}

class LostSleepingMemory : public SleepingMemory {
 protected:
  LostSleepingMemory() : SleepingMemory(1) {}
};

TEST_F(LostSleepingMemory, IsReportedWhereAGraphIsReplayedMeanwhile) {
  const CUgraphExec graph = Capture([&](CUstream stream) { return Launch(stream, {range()}); });
  Sleep();
  EXPECT_EQ(Replay(graph), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_TRUE(AnyContains(TakeReports(), "a graph is replayed over memory that sleeps: test kernel"));
}

}  // namespace
}  // namespace commpool::internal::testing
