// Symmetric pools and graphs: the sequence serves a capture as always, and memory of a live graph stays.
#include <cuda.h>

#include <chrono>
#include <future>
#include <thread>

#include "src/library/driver/graph_handles.h"
#include "tests/pool/announced_capture.h"
#include "tests/registration/symmetric_fixture.h"
#include "tools/common/launch.h"

namespace commpool::internal::testing {
namespace {

class SymmetricCapture : public SymmetricTest {
 protected:
  struct Graph {
    AnnouncedCapture capture;
    CUdeviceptr block = 0;
  };

  void SetUp() override {
    SymmetricTest::SetUp();
    if (!IsSkipped()) graphs_.resize(static_cast<size_t>(group().size()));
  }
  Graph& GraphOf(const Rank& rank) { return graphs_[static_cast<size_t>(rank.number)]; }

  Status Begin(const Rank& rank) {
    // Relaxed, because ranks are threads here: their calls would break each other's captures, and other threads end
    // them.
    return GraphOf(rank).capture.Begin(runtime(), HandleOf(rank), rank.stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  }
  Status End(const Rank& rank) { return GraphOf(rank).capture.End(); }
  Status Destroy(const Rank& rank) {
    GraphOf(rank).capture.DestroyGraph();
    return Status();
  }
  // Another stream on each rank, and the release of all of them.
  void MakeOthers() {
    others_.resize(graphs_.size());
    ForEach([&](Rank& rank) {
      EXPECT_EQ(driver().cuda.cuStreamCreate(&others_[static_cast<size_t>(rank.number)], CU_STREAM_NON_BLOCKING),
                CUDA_SUCCESS);
    });
  }
  CUstream OtherOf(const Rank& rank) const { return others_[static_cast<size_t>(rank.number)]; }
  void ReleaseOthers() {
    ExpectOk(Run([&](Rank& rank) {
      const Status status = runtime().ReleaseStream(OtherOf(rank));
      EXPECT_EQ(driver().cuda.cuStreamDestroy(OtherOf(rank)), CUDA_SUCCESS);
      return status;
    }));
  }
  // Every rank captures the allocation of a block, and its free.
  Statuses CaptureABlock(uint64_t bytes) {
    return Run([&](Rank& rank) {
      Status status = Begin(rank);
      if (!status.ok()) return status;
      Result<CUdeviceptr> block = PoolOf(rank).Allocate(bytes, KeyOfStream(rank.stream, rank.number));
      if (!block.ok()) return block.status();
      GraphOf(rank).block = *block;
      EXPECT_EQ(driver().cuda.cuMemsetD8Async(*block, 7, bytes, rank.stream), CUDA_SUCCESS);
      status = PoolOf(rank).Free(*block);
      return status.ok() ? End(rank) : status;
    });
  }

 private:
  std::vector<Graph> graphs_;
  std::vector<CUstream> others_;
};

TEST_F(SymmetricCapture, KeepsTheGraphsBlocksUntilItIsGone) {
  CreateAndReserve(4 * kMiB);
  ExpectOk(CaptureABlock(kMiB));
  ExpectOk(Reclaim());
  const std::vector<CUdeviceptr> outside = Allocate(kMiB);
  const std::vector<uint64_t> offsets = OffsetsOf(outside);
  for (int number = 0; number <= last(); ++number) {
    EXPECT_NE(outside[static_cast<size_t>(number)], GraphOf(group()[number]).block) << "freed, and still the graph's";
    EXPECT_EQ(offsets[static_cast<size_t>(number)], kMiB);
  }
  ExpectOk(Run([&](Rank& rank) {
    CUgraphExec replay = nullptr;
    EXPECT_EQ(driver().cuda.cuGraphInstantiate(&replay, GraphOf(rank).capture.graph(), 0), CUDA_SUCCESS);
    EXPECT_EQ(driver().cuda.cuGraphLaunch(replay, rank.stream), CUDA_SUCCESS);
    EXPECT_EQ(driver().cuda.cuStreamSynchronize(rank.stream), CUDA_SUCCESS);
    EXPECT_EQ(driver().cuda.cuGraphExecDestroy(replay), CUDA_SUCCESS);
    return Destroy(rank);
  }));
  Free(outside);
  ExpectOk(Trim(0));  // all of it is free again
  EXPECT_EQ(ReservedBytes(0), 0u);
}

TEST_F(SymmetricCapture, PinsTheSegmentsOnAllRanksWhileOneGraphLives) {
  CreateAndReserve(4 * kMiB);
  ExpectOk(CaptureABlock(kMiB));
  ExpectOk(Run([&](Rank& rank) { return rank.number == last() ? Status() : Destroy(rank); }));
  const auto pinned = StatusCode::kFailedPrecondition;
  const std::string why = ": 1 graph that captured with the pool may still be replayed";
  const std::string who = "rank " + std::to_string(last()) + " cannot ";
  ExpectFailure(Trim(0), pinned, who + "trim" + why);
  ExpectFailure(Run([&](Rank& rank) { return PoolOf(rank).mode().Deregister(rank.communicator); }), pinned,
                who + "deregister" + why);
  ExpectFailure(Close(), pinned, who + "close" + why);
  EXPECT_EQ(ReservedBytes(0), 4 * kMiB);
  EXPECT_EQ(RegisteredSegments(0), 1u);
  ExpectOk(Reserve(6 * kMiB));  // growth takes no memory of the graph
  ExpectOk({Destroy(group()[last()])});
  ExpectOk(Run([&](Rank& rank) { return PoolOf(rank).mode().Deregister(rank.communicator); }));
}

TEST_F(SymmetricCapture, LetsNothingGrowWhileItIsOpen) {
  CreateAndReserve(2 * kMiB);
  ExpectOk(Run([&](Rank& rank) { return Begin(rank); }));
  for (const Statuses& statuses : {Reserve(8 * kMiB), Trim(0), Run([&](Rank& rank) {
                                     return PoolOf(rank).mode().RegisterWith(rank.communicator);
                                   })}) {
    ExpectFailure(statuses, StatusCode::kFailedPrecondition, "a stream is being captured with the pool");
  }
  ExpectOk(Reclaim());  // needs only messages between ranks
  ExpectFailure(
      Run([&](Rank& rank) { return PoolOf(rank).Allocate(4 * kMiB, KeyOfStream(rank.stream, rank.number)).status(); }),
      StatusCode::kExhausted, "reserve(");
  ExpectOk(Run([&](Rank& rank) { return End(rank); }));
  ExpectOk(Run([&](Rank& rank) { return Destroy(rank); }));
}

// What ranks tell each other as a pool is made must not go through the legacy stream.
TEST_F(SymmetricCapture, OfABlockingStreamIsNotBrokenByAPoolThatIsMadeMeanwhile) {
  std::vector<CUstream> blocking(static_cast<size_t>(group().size()));
  const CudaDriver& cuda = driver().cuda;
  ForEach([&](Rank& rank) {
    CUstream& own = blocking[static_cast<size_t>(rank.number)];
    EXPECT_EQ(cuda.cuStreamCreate(&own, CU_STREAM_DEFAULT), CUDA_SUCCESS);
    EXPECT_EQ(cuda.cuStreamBeginCapture(own, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  });
  ExpectOk(Create());
  ForEach([&](Rank& rank) {
    const CUstream own = blocking[static_cast<size_t>(rank.number)];
    CUgraph graph = nullptr;
    EXPECT_EQ(cuda.cuStreamEndCapture(own, &graph), CUDA_SUCCESS);
    EXPECT_EQ(cuda.cuGraphDestroy(graph), CUDA_SUCCESS);
    EXPECT_EQ(cuda.cuStreamDestroy(own), CUDA_SUCCESS);
  });
}

TEST_F(SymmetricCapture, WaitsOnTheHostForWhatOtherStreamsDidBefore) {
  CreateAndReserve(2 * kMiB);
  MakeOthers();
  ExpectOk(Run([&](Rank& rank) {
    const CUstream other = OtherOf(rank);
    const CUdeviceptr block = PoolOf(rank).Allocate(2 * kMiB, KeyOfStream(other, rank.number)).value();
    EXPECT_EQ(driver().cuda.cuMemsetD8Async(block, 1, kMiB, other), CUDA_SUCCESS);
    return PoolOf(rank).Free(block);
  }));
  ExpectOk(Reclaim());
  ExpectOk(CaptureABlock(2 * kMiB));
  ExpectOk(Run([&](Rank& rank) {
    EXPECT_EQ(PoolOf(rank).Statistics().host_waits, 1u);
    return Destroy(rank);
  }));
  ReleaseOthers();
}

// A fence exists behind those uses. Its stream may have more work by now, or be gone.
TEST_F(SymmetricCapture, WaitsForAFenceThatWasRecordedBeforeAndForNoMore) {
  COMMPOOL_REQUIRE_EMULATOR("it counts calls and holds streams");
  CreateAndReserve(2 * kMiB);
  MakeOthers();
  std::promise<void> end;
  const std::shared_future<void> ended = end.get_future().share();
  ExpectOk(Run([&](Rank& rank) {
    const CUdeviceptr block = PoolOf(rank).Allocate(2 * kMiB, KeyOfStream(rank.stream, rank.number)).value();
    Status status =
        Launch(driver(), OtherOf(rank), {}, {{block, 512}}, [ended](const auto&, const auto&) { ended.wait(); });
    if (status.ok()) status = PoolOf(rank).RecordStream(block, KeyOfStream(OtherOf(rank), rank.number));
    return status.ok() ? PoolOf(rank).Free(block) : status;
  }));
  ExpectOk(Reclaim());
  ExpectOk(Run([&](Rank& rank) { return Begin(rank); }));
  const uint64_t records = CallCount("cuEventRecord");
  std::future<Statuses> served = std::async(std::launch::async, [&] {
    return Run([&](Rank& rank) {
      const Result<CUdeviceptr> block = PoolOf(rank).Allocate(2 * kMiB, KeyOfStream(rank.stream, rank.number));
      return block.ok() ? PoolOf(rank).Free(*block) : block.status();
    });
  });
  const auto over = [&] { return served.wait_for(std::chrono::seconds(0)) == std::future_status::ready; };
  while (PoolOf(group()[0]).Statistics().host_waits == 0 && !over()) std::this_thread::yield();
  end.set_value();
  ExpectOk(served.get());
  EXPECT_EQ(CallCount("cuEventRecord"), records);
  ExpectOk(Run([&](Rank& rank) { return End(rank); }));
  ExpectOk(Run([&](Rank& rank) { return Destroy(rank); }));
  ReleaseOthers();
}

TEST_F(SymmetricCapture, TakesABlockBackForWhichItCouldNotWait) {
  COMMPOOL_REQUIRE_EMULATOR("a fault is injected");
  CreateAndReserve(2 * kMiB);
  MakeOthers();
  ExpectOk(Run([&](Rank& rank) {
    const CUdeviceptr block = PoolOf(rank).Allocate(2 * kMiB, KeyOfStream(OtherOf(rank), rank.number)).value();
    EXPECT_EQ(driver().cuda.cuMemsetD8Async(block, 1, kMiB, OtherOf(rank)), CUDA_SUCCESS);
    return PoolOf(rank).Free(block);
  }));
  ExpectOk(Reclaim());
  ExpectOk(Run([&](Rank& rank) { return Begin(rank); }));
  {
    const InjectedFault on_all({.call = "cuEventRecord", .result = CUDA_ERROR_INVALID_VALUE, .count = group().size()});
    ExpectFailure(Run([&](Rank& rank) {
                    return PoolOf(rank).Allocate(2 * kMiB, KeyOfStream(rank.stream, rank.number)).status();
                  }),
                  StatusCode::kDriverError, "pool gradients");
  }
  ExpectOk(Run([&](Rank& rank) { return End(rank); }));
  ExpectOk(Run([&](Rank& rank) { return Destroy(rank); }));
  ExpectOk(Trim(0));
  EXPECT_EQ(ReservedBytes(0), 0u) << "no block is lost";
  ReleaseOthers();
}

TEST_F(SymmetricCapture, GivesABlockItsFencesOnceTheGraphIsGone) {
  CreateAndReserve(2 * kMiB);
  MakeOthers();
  ExpectOk(Run([&](Rank& rank) {
    Status status = Begin(rank);
    if (!status.ok()) return status;
    const CUdeviceptr block = PoolOf(rank).Allocate(2 * kMiB, KeyOfStream(rank.stream, rank.number)).value();
    status = PoolOf(rank).RecordStream(block, KeyOfStream(OtherOf(rank), rank.number));
    if (status.ok()) status = PoolOf(rank).Free(block);
    return status.ok() ? End(rank) : status;
  }));
  ExpectOk(Reclaim());
  EXPECT_EQ(PoolOf(group()[0]).Statistics().pending_bytes, 2 * kMiB);
  ExpectOk(Run([&](Rank& rank) { return Destroy(rank); }));
  ExpectOk(Trim(0));
  EXPECT_EQ(ReservedBytes(0), 0u);
  ReleaseOthers();
}

TEST_F(SymmetricCapture, RecordsNoFenceForAGraphsBlockBeforeTheGraphIsGone) {
  COMMPOOL_REQUIRE_EMULATOR("it counts calls");
  CreateAndReserve(4 * kMiB);
  MakeOthers();
  ExpectOk(Run([&](Rank& rank) { return Begin(rank); }));
  const uint64_t records = CallCount("cuEventRecord");
  ExpectOk(Run([&](Rank& rank) {
    const CUdeviceptr in_capture = PoolOf(rank).Allocate(2 * kMiB, KeyOfStream(rank.stream, rank.number)).value();
    const CUdeviceptr after_capture = PoolOf(rank).Allocate(2 * kMiB, KeyOfStream(rank.stream, rank.number)).value();
    for (const CUdeviceptr block : {in_capture, after_capture}) {
      EXPECT_TRUE(PoolOf(rank).RecordStream(block, KeyOfStream(OtherOf(rank), rank.number)).ok());
    }
    Status status = PoolOf(rank).Free(in_capture);
    if (status.ok()) status = End(rank);
    return status.ok() ? PoolOf(rank).Free(after_capture) : status;
  }));
  EXPECT_EQ(CallCount("cuEventRecord"), records);
  ExpectOk(Run([&](Rank& rank) { return Destroy(rank); }));
  ExpectOk(Trim(0));
  EXPECT_GT(CallCount("cuEventRecord"), records) << "once the graph is gone its blocks owe their fences";
  EXPECT_EQ(ReservedBytes(0), 0u);
  ReleaseOthers();
}

// The block's work has no event, and one that is recorded now would pull the other stream into the capture.
TEST_F(SymmetricCapture, GivesNoOtherStreamWhatItsStreamUsedBefore) {
  CreateAndReserve(2 * kMiB);
  MakeOthers();
  ExpectOk(Run([&](Rank& rank) {
    const StreamKey stream = KeyOfStream(rank.stream, rank.number);
    return PoolOf(rank).Free(PoolOf(rank).Allocate(2 * kMiB, stream).value());
  }));
  ExpectOk(Reclaim());
  ExpectOk(Run([&](Rank& rank) { return Begin(rank); }));
  ExpectFailure(Run([&](Rank& rank) {
                  return PoolOf(rank).Allocate(2 * kMiB, KeyOfStream(OtherOf(rank), rank.number)).status();
                }),
                StatusCode::kFailedPrecondition, "captures");
  ExpectOk(Run([&](Rank& rank) { return End(rank); }));
  ExpectOk(Run([&](Rank& rank) { return Destroy(rank); }));
  ExpectOk(Trim(0));
  EXPECT_EQ(ReservedBytes(0), 0u);
  ReleaseOthers();
}

TEST_F(SymmetricCapture, NeedsDeferredFrees) {
  CreateAndReserve(2 * kMiB, Ordered);
  ExpectFailure(Run([&](Rank& rank) {
                  const Status status = Begin(rank);
                  CUgraph graph = nullptr;
                  EXPECT_EQ(driver().cuda.cuStreamEndCapture(rank.stream, &graph), CUDA_SUCCESS);
                  EXPECT_EQ(driver().cuda.cuGraphDestroy(graph), CUDA_SUCCESS);
                  return status;
                }),
                StatusCode::kNotSupported, "ordered frees");
}

}  // namespace
}  // namespace commpool::internal::testing
