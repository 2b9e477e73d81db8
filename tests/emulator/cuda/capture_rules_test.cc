// What the emulator checks in captures, graphs and user objects beyond the answers of hardware.
#include <future>
#include <vector>

#include "tests/driver/capturing.h"
#include "tests/emulator/cuda/machine_fixture.h"

namespace commpool::internal::testing {
namespace {

class CaptureRules : public Capturing<MachineTest> {
 protected:
  using Capturing::Capturing;
  CUstream Begin() { return BeginOnNewStream(CU_STREAM_CAPTURE_MODE_RELAXED); }
};

class CapturedMemory : public CaptureRules {
 protected:
  void Use() { ASSERT_EQ(Launch(stream_, {{memory_.address(), kUnit}}), CUDA_SUCCESS); }
  void ExpectReportOfUnmapping() {
    memory_.Unmap();
    ExpectOneReport({"unmapped while a live graph uses it"});
  }

  MappedMemory memory_ = Map();
  const CUstream stream_ = Begin();
};

TEST_F(CapturedMemory, IsNotUnmappedWhileAGraphNamesIt) {
  Use();
  End(stream_);
  ExpectReportOfUnmapping();
}

TEST_F(CapturedMemory, IsNotUnmappedWhileAnExecutableGraphNamesIt) {
  ASSERT_EQ(Launch(stream_, {}, 1, {{memory_.address(), kUnit}}), CUDA_SUCCESS);
  const CUgraph graph = End(stream_);
  Instantiate(graph);
  ASSERT_EQ(Destroy(graph), CUDA_SUCCESS);
  ExpectReportOfUnmapping();
}

TEST_F(CapturedMemory, IsNotUnmappedWhileACaptureNamesIt) {
  Use();
  ExpectReportOfUnmapping();
  End(stream_);
}

TEST_F(CapturedMemory, IsFreeOnceItsGraphsAreGone) {
  Use();
  const CUgraph graph = End(stream_);
  const CUgraphExec executable = Instantiate(graph);
  ASSERT_EQ(Destroy(graph), CUDA_SUCCESS);
  ASSERT_EQ(Destroy(executable), CUDA_SUCCESS);
  memory_.Unmap();
}

// Loses a device that no other test uses.
class LostByReplay : public CaptureRules {
 protected:
  LostByReplay() : CaptureRules(3) {}
};

TEST_F(LostByReplay, AReplayOverUnmappedMemoryLosesTheContext) {
  const CUstream stream = Begin();
  CUgraphExec executable = nullptr;
  {
    const MappedMemory memory = Map(3);
    ASSERT_EQ(Launch(stream, {{memory.address(), kUnit}}), CUDA_SUCCESS);
    executable = Instantiate(End(stream));
    ASSERT_EQ(cuda().cuGraphLaunch(executable, stream), CUDA_SUCCESS);
    ASSERT_EQ(cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
  }
  TakeReports();
  ASSERT_EQ(cuda().cuGraphLaunch(executable, stream), CUDA_SUCCESS) << "a launch looks at nothing";
  EXPECT_EQ(cuda().cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_TRUE(AnyContains(TakeReports(), "access to memory that is not there"));
}

TEST_F(CaptureRules, ALaunchIsCheckedWhenItIsCapturedToo) {
  const CUstream stream = Begin();
  EXPECT_EQ(Launch(stream, {{4096, kUnit}}), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_TRUE(AnyContains(TakeReports(), "access that is not granted"));
  EXPECT_EQ(NodesOf(End(stream)), 0u);
}

TEST_F(CaptureRules, NodesWithoutAnOrderRunSideBySide) {
  const CUstream forked = MakeStream();
  const CUstream stream = Begin();
  std::promise<void> gate;
  const CUhostFn wait = [](void* promise) { static_cast<std::promise<void>*>(promise)->get_future().wait(); };
  const CUhostFn open = [](void* promise) { static_cast<std::promise<void>*>(promise)->set_value(); };
  Order(stream, forked);
  ASSERT_EQ(cuda().cuLaunchHostFunc(stream, wait, &gate), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuLaunchHostFunc(forked, open, &gate), CUDA_SUCCESS);
  Order(forked, stream);
  ASSERT_EQ(cuda().cuGraphLaunch(Instantiate(End(stream)), stream), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
}

TEST_F(CaptureRules, AReplayTakesTheTimeOfItsLongestPath) {
  const CUstream forked = MakeStream();
  const CUstream stream = Begin();
  Order(stream, forked);
  ASSERT_EQ(Launch(stream, {}, 1000), CUDA_SUCCESS);
  ASSERT_EQ(Launch(forked, {}, 3000), CUDA_SUCCESS);
  Order(forked, stream);
  ASSERT_EQ(Launch(stream, {}, 1000), CUDA_SUCCESS);
  const CUgraphExec executable = Instantiate(End(stream));
  const CUevent start = Record(stream);
  ASSERT_EQ(cuda().cuGraphLaunch(executable, stream), CUDA_SUCCESS);
  const CUevent end = Record(stream);
  ASSERT_EQ(cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_NEAR(MicrosecondsBetween(start, end), 4000, 100) << "virtual";
}

TEST_F(CaptureRules, LeftoversAreListed) {
  const std::vector<std::string> before = EmulatorLeaks();
  const CUstream stream = Begin();
  EXPECT_TRUE(AnyContains(EmulatorLeaks(), "begun and not ended"));
  ASSERT_EQ(Launch(stream, {}), CUDA_SUCCESS);
  const CUgraph graph = End(stream);
  EXPECT_FALSE(AnyContains(EmulatorLeaks(), "begun and not ended"));
  EXPECT_TRUE(AnyContains(EmulatorLeaks(), "graph of 1 nodes"));
  const CUgraphExec executable = Instantiate(graph);
  EXPECT_TRUE(AnyContains(EmulatorLeaks(), "executable graph of 1 nodes"));
  CUuserObject object = nullptr;
  const CUhostFn nothing = [](void*) {};
  ASSERT_EQ(cuda().cuUserObjectCreate(&object, nullptr, nothing, 2, 1), CUDA_SUCCESS);
  EXPECT_TRUE(AnyContains(EmulatorLeaks(), "user object, 2 references"));
  ASSERT_EQ(cuda().cuUserObjectRelease(object, 2), CUDA_SUCCESS);
  ASSERT_EQ(Destroy(executable), CUDA_SUCCESS);
  ASSERT_EQ(Destroy(graph), CUDA_SUCCESS);
  EXPECT_EQ(EmulatorLeaks().size(), before.size() + 1) << "the stream";
}

TEST_F(CaptureRules, HandlesThatAreGoneAreRefused) {
  const CUstream stream = Begin();
  const CUgraph graph = End(stream);
  const CUgraphExec executable = Instantiate(graph);
  ASSERT_EQ(Destroy(executable), CUDA_SUCCESS);
  ASSERT_EQ(Destroy(graph), CUDA_SUCCESS);
  CUgraphExec made = nullptr;
  EXPECT_EQ(cuda().cuGraphLaunch(executable, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda().cuGraphExecDestroy(executable), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda().cuGraphInstantiate(&made, graph, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda().cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(CaptureRules, AGraphInTheMakingIsNeitherLaunchedNorDestroyed) {
  const CUstream stream = Begin();
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CUgraph graph = nullptr;
  ASSERT_EQ(cuda().cuStreamGetCaptureInfo(stream, &status, nullptr, &graph, nullptr, nullptr, nullptr), CUDA_SUCCESS);
  CUgraphExec executable = nullptr;
  EXPECT_EQ(cuda().cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda().cuGraphInstantiate(&executable, graph, 0), CUDA_ERROR_INVALID_VALUE);
  End(stream);
}

TEST_F(CaptureRules, ACallbackCallsNoCuda) {
  struct Seen {
    const Driver& driver;
    std::promise<CUresult> result;
  };
  Seen seen{driver(), {}};
  const CUhostFn callback = [](void* context) {
    auto* const self = static_cast<Seen*>(context);
    size_t free = 0;
    self->result.set_value(self->driver.cuda.cuMemGetInfo(&free, nullptr));
  };
  const CUuserObject object = Get(cuda().cuUserObjectCreate, &seen, callback, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
  ASSERT_EQ(cuda().cuUserObjectRelease(object, 1), CUDA_SUCCESS);
  EXPECT_EQ(seen.result.get_future().get(), CUDA_ERROR_NOT_PERMITTED);
  EXPECT_TRUE(AnyContains(TakeReports(), "a user object's callback called CUDA: cuMemGetInfo"));
}

TEST_F(CaptureRules, AUserObjectIsNotReleasedMoreOftenThanItIsHeld) {
  std::promise<void> ended;
  const CUhostFn end = [](void* promise) { static_cast<std::promise<void>*>(promise)->set_value(); };
  const CUuserObject object = Get(cuda().cuUserObjectCreate, &ended, end, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
  const CUgraph graph = End(Begin());
  EXPECT_EQ(cuda().cuGraphReleaseUserObject(graph, object, 1), CUDA_SUCCESS) << "as on hardware";
  EXPECT_TRUE(AnyContains(TakeReports(), "released too often"));
  EXPECT_EQ(cuda().cuUserObjectRelease(object, 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_TRUE(AnyContains(TakeReports(), "released too often"));
  ASSERT_EQ(cuda().cuUserObjectRelease(object, 1), CUDA_SUCCESS);
  ended.get_future().wait();
}

TEST_F(CaptureRules, CapturesOfOneThreadAreIndependent) {
  const CUstream first = Begin();
  const CUstream second = Begin();
  ASSERT_EQ(Launch(first, {}), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuStreamQuery(second), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EndFails(second, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(NodesOf(End(first)), 1u);
}

TEST_F(CaptureRules, AForkOfAForkIsJoinedThroughIt) {
  const CUstream child = MakeStream();
  const CUstream grandchild = MakeStream();
  const CUstream stream = Begin();
  Order(stream, child);
  Order(child, grandchild);
  ASSERT_EQ(Launch(grandchild, {}), CUDA_SUCCESS);
  Order(grandchild, child);
  ASSERT_EQ(Launch(child, {}), CUDA_SUCCESS);
  Order(child, stream);
  EXPECT_EQ(NodesOf(End(stream)), 2u);
}

TEST_F(CaptureRules, DependenciesCanBeSet) {
  const CUstream forked = MakeStream();
  const CUstream stream = Begin();
  Order(stream, forked);
  ASSERT_EQ(Launch(forked, {}), CUDA_SUCCESS);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUgraphNode* nodes = nullptr;
  size_t count = 0;
  ASSERT_EQ(cuda().cuStreamGetCaptureInfo(forked, &status, nullptr, nullptr, &nodes, nullptr, &count), CUDA_SUCCESS);
  ASSERT_EQ(count, 1u);
  CUgraphNode node = *nodes;
  EXPECT_EQ(cuda().cuStreamUpdateCaptureDependencies(stream, &node, nullptr, 1, 9), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda().cuStreamUpdateCaptureDependencies(MakeStream(), &node, nullptr, 1, 0), CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_EQ(cuda().cuStreamUpdateCaptureDependencies(stream, &node, nullptr, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES),
            CUDA_SUCCESS);
  End(stream);
}

TEST_F(CaptureRules, AThreadsModeIsOneOfThree) {
  CUstreamCaptureMode mode = static_cast<CUstreamCaptureMode>(3);
  EXPECT_EQ(cuda().cuThreadExchangeStreamCaptureMode(&mode), CUDA_ERROR_INVALID_VALUE) << "hardware takes it";
  EXPECT_EQ(cuda().cuThreadExchangeStreamCaptureMode(nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(CaptureRules, ACaptureIsAnnouncedByAnyOfItsStreams) {
  const auto is_unannounced = [](CUstream stream) {
    return COMMPOOL_EXTENSION(commpoolEmulatorIsUnannouncedCapture)(stream) == 1;
  };
  const auto announce = COMMPOOL_EXTENSION(commpoolEmulatorCaptureAnnounced);
  const CUstream forked = MakeStream();
  const CUstream stream = MakeStream();
  EXPECT_FALSE(is_unannounced(stream)) << "it does not capture";
  announce(stream, 1);
  Capturing::Begin(stream);
  Order(stream, forked);
  EXPECT_FALSE(is_unannounced(stream));
  EXPECT_FALSE(is_unannounced(forked)) << "its origin is";
  announce(stream, 0);
  EXPECT_TRUE(is_unannounced(stream));
  EXPECT_TRUE(is_unannounced(forked));
  announce(forked, 1);
  announce(forked, 1);
  announce(forked, 0);
  EXPECT_FALSE(is_unannounced(forked)) << "announcements nest";
  EXPECT_FALSE(is_unannounced(stream)) << "a stream that it forked is";
  announce(forked, 0);
  EXPECT_TRUE(is_unannounced(stream));
  End(stream);
  EXPECT_FALSE(is_unannounced(stream));
}

// A pool allocates blocks for a capturing stream.

class UnannouncedCaptures : public Capturing<MachineTest> {
 protected:
  UnannouncedCaptures() { Begin(stream_, CU_STREAM_CAPTURE_MODE_RELAXED); }

  static void Announce(CUstream stream, int announced) {
    COMMPOOL_EXTENSION(commpoolEmulatorCaptureAnnounced)(stream, announced);
  }
  void AnnounceBlock(CUstream stream) {
    COMMPOOL_EXTENSION(commpoolEmulatorBlockAllocated)(segment_, 4096, stream, "grads");
  }

  const CUdeviceptr segment_ = Allocate();
  const CUstream stream_ = MakeStream();
};

TEST_F(UnannouncedCaptures, AreReportedWithThePoolTheBlockAndTheStream) {
  AnnounceBlock(stream_);
  End(stream_);
  ExpectOneReport({"unannounced capture: pool grads serves stream ", " of device 0, which captures",
                   "a block of 4096 bytes", "allocated at "});
}

TEST_F(UnannouncedCaptures, AreReportedOnStreamsThatJoined) {
  const CUstream joined = MakeStream();
  Order(stream_, joined);
  AnnounceBlock(joined);
  EXPECT_EQ(TakeReports().size(), 1u);
  Announce(stream_, 1);
  AnnounceBlock(joined);
  EXPECT_EQ(TakeReports(), std::vector<std::string>()) << "its origin is announced";
  Announce(stream_, 0);
  Order(joined, stream_);
  End(stream_);
}

TEST_F(UnannouncedCaptures, AreNoneWhereTheyAreAnnounced) {
  Announce(stream_, 1);
  AnnounceBlock(stream_);
  Announce(stream_, 0);
  End(stream_);
  EXPECT_EQ(TakeReports(), std::vector<std::string>());
}

TEST_F(UnannouncedCaptures, AreNoneOnOtherStreams) {
  AnnounceBlock(MakeStream());
  AnnounceBlock(CU_STREAM_PER_THREAD);
  End(stream_);
  EXPECT_EQ(TakeReports(), std::vector<std::string>());
}

}  // namespace
}  // namespace commpool::internal::testing
