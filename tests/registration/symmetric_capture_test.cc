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
  Graph& GraphOf(const Rank& rank) { return graphs_[rank.index()]; }

  Status Begin(const Rank& rank) {
    // Relaxed, because ranks are threads here: their calls would break each other's captures, and other threads end
    // them.
    return GraphOf(rank).capture.Begin(runtime(), HandleOf(rank), rank.stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  }
  Status End(const Rank& rank) { return GraphOf(rank).capture.End(); }
  void BeginAll() {
    ExpectOk(Run([&](Rank& rank) { return Begin(rank); }));
  }
  void EndAll() {
    ExpectOk(Run([&](Rank& rank) { return End(rank); }));
  }
  void DestroyAll() {
    ForEach([&](Rank& rank) { GraphOf(rank).capture.DestroyGraph(); });
  }
  void ExpectAllFreeAgain() {
    ExpectOk(Trim(0));
    ExpectOnAll(0, 0);
  }
  // And another stream on each rank.
  void CreateWithOthers(uint64_t bytes) {
    CreateAndReserve(bytes);
    others_.resize(graphs_.size());
    ForEach([&](Rank& rank) {
      EXPECT_EQ(driver().cuda.cuStreamCreate(&others_[rank.index()], CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    });
  }
  CUstream OtherOf(const Rank& rank) const { return others_[rank.index()]; }
  void TearDown() override {
    if (!others_.empty()) {
      ExpectOk(Run([&](Rank& rank) { return runtime().ReleaseStream(OtherOf(rank)); }));
      ForEach([&](Rank& rank) { EXPECT_EQ(driver().cuda.cuStreamDestroy(OtherOf(rank)), CUDA_SUCCESS); });
    }
    SymmetricTest::TearDown();
  }
  // A block on each rank, which that stream has used.
  void UseOthers() {
    ExpectOk(Run([&](Rank& rank) {
      const CUdeviceptr block = PoolOf(rank).Allocate(2 * kMiB, KeyOfStream(OtherOf(rank), rank.number)).value();
      EXPECT_EQ(driver().cuda.cuMemsetD8Async(block, 1, kMiB, OtherOf(rank)), CUDA_SUCCESS);
      return PoolOf(rank).Free(block);
    }));
  }
  // Every rank captures the allocation of a block, and its free.
  void CaptureABlock(uint64_t bytes) {
    BeginAll();
    ForEach([&](Rank& rank) {
      const CUdeviceptr block = GraphOf(rank).block = AllocateOn(rank, bytes).value();
      EXPECT_EQ(driver().cuda.cuMemsetD8Async(block, 7, bytes, rank.stream), CUDA_SUCCESS);
      ExpectOk({PoolOf(rank).Free(block)});
    });
    EndAll();
  }

 private:
  std::vector<Graph> graphs_;
  std::vector<CUstream> others_;
};

TEST_F(SymmetricCapture, KeepsTheGraphsBlocksUntilItIsGone) {
  CreateAndReserve(4 * kMiB);
  CaptureABlock(kMiB);
  ExpectOk(Reclaim());
  const std::vector<CUdeviceptr> outside = Allocate(kMiB);
  for (const Rank& rank : group()) {
    EXPECT_NE(outside[rank.index()], GraphOf(rank).block) << "freed, and still the graph's";
  }
  EXPECT_EQ(OffsetsOf(outside), std::vector<uint64_t>(outside.size(), kMiB));
  ForEach([&](Rank& rank) { GraphOf(rank).capture.Replay(rank.stream); });
  DestroyAll();
  Free(outside);
  ExpectAllFreeAgain();
}

TEST_F(SymmetricCapture, PinsTheSegmentsOnAllRanksWhileOneGraphLives) {
  CreateAndReserve(4 * kMiB);
  CaptureABlock(kMiB);
  for (int rank = 0; rank < last(); ++rank) GraphOf(group()[rank]).capture.DestroyGraph();
  const auto pinned = StatusCode::kFailedPrecondition;
  const std::string why = ": 1 graph that captured with the pool may still be replayed";
  const std::string who = LastRank() + " cannot ";
  ExpectFailure(Trim(0), pinned, who + "trim" + why);
  ExpectFailure(Deregister(Homes()), pinned, who + "deregister" + why);
  ExpectFailure(Close(), pinned, who + "close" + why);
  EXPECT_EQ(ReservedBytes(0), 4 * kMiB);
  EXPECT_EQ(RegisteredSegments(0), 1u);
  ExpectOk(Abandon(Another(), CommunicatorLife::kAlive));  // the pool has nothing of that one to end
  ExpectOk(Reserve(6 * kMiB));                             // growth takes no memory of the graph
  GraphOf(group()[last()]).capture.DestroyGraph();
  ExpectOk(Deregister(Homes()));
}

TEST_F(SymmetricCapture, LetsNothingGrowWhileItIsOpen) {
  CreateAndReserve(2 * kMiB);
  BeginAll();
  for (const Statuses& statuses : {Reserve(8 * kMiB), Trim(0), Register(Homes())}) {
    ExpectFailure(statuses, StatusCode::kFailedPrecondition, "a stream is being captured with the pool");
  }
  ExpectOk(Reclaim());  // needs only messages between ranks
  ExpectFailure(Run([&](Rank& rank) { return AllocateOn(rank, 4 * kMiB).status(); }), StatusCode::kExhausted,
                "reserve(");
  EndAll();
  DestroyAll();
}

// What ranks tell each other as a pool is made must not go through the legacy stream.
TEST_F(SymmetricCapture, OfABlockingStreamIsNotBrokenByAPoolThatIsMadeMeanwhile) {
  std::vector<CUstream> blocking(static_cast<size_t>(group().size()));
  const CudaDriver& cuda = driver().cuda;
  ForEach([&](Rank& rank) {
    CUstream& own = blocking[rank.index()];
    EXPECT_EQ(cuda.cuStreamCreate(&own, CU_STREAM_DEFAULT), CUDA_SUCCESS);
    EXPECT_EQ(cuda.cuStreamBeginCapture(own, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  });
  ExpectOk(Create());
  ForEach([&](Rank& rank) {
    const CUstream own = blocking[rank.index()];
    CUgraph graph = nullptr;
    EXPECT_EQ(cuda.cuStreamEndCapture(own, &graph), CUDA_SUCCESS);
    EXPECT_EQ(cuda.cuGraphDestroy(graph), CUDA_SUCCESS);
    EXPECT_EQ(cuda.cuStreamDestroy(own), CUDA_SUCCESS);
  });
}

TEST_F(SymmetricCapture, WaitsOnTheHostForWhatOtherStreamsDidBefore) {
  CreateWithOthers(2 * kMiB);
  UseOthers();
  ExpectOk(Reclaim());
  CaptureABlock(2 * kMiB);
  for (int rank = 0; rank <= last(); ++rank) EXPECT_EQ(StatisticsOf(rank).host_waits, 1u);
  DestroyAll();
}

// A fence exists behind those uses. Its stream may have more work by now, or be gone.
TEST_F(SymmetricCapture, WaitsForAFenceThatWasRecordedBeforeAndForNoMore) {
  COMMPOOL_REQUIRE_EMULATOR("it counts calls and holds streams");
  CreateWithOthers(2 * kMiB);
  std::promise<void> end;
  const std::shared_future<void> ended = end.get_future().share();
  ExpectOk(Run([&](Rank& rank) {
    const CUdeviceptr block = AllocateOn(rank, 2 * kMiB).value();
    ExpectOk({Launch(driver(), OtherOf(rank), {}, {{block, 512}}, [ended](const auto&, const auto&) { ended.wait(); }),
              PoolOf(rank).RecordStream(block, KeyOfStream(OtherOf(rank), rank.number))});
    return PoolOf(rank).Free(block);
  }));
  ExpectOk(Reclaim());
  BeginAll();
  const uint64_t records = CallCount("cuEventRecord");
  std::future<Statuses> served = std::async(
      std::launch::async, [&] { return Run([&](Rank& rank) { return AllocateAndFreeOn(rank, 2 * kMiB); }); });
  const auto over = [&] { return served.wait_for(std::chrono::seconds(0)) == std::future_status::ready; };
  while (StatisticsOf(0).host_waits == 0 && !over()) std::this_thread::yield();
  end.set_value();
  ExpectOk(served.get());
  EXPECT_EQ(CallCount("cuEventRecord"), records);
  EndAll();
  DestroyAll();
}

TEST_F(SymmetricCapture, TakesABlockBackForWhichItCouldNotWait) {
  COMMPOOL_REQUIRE_EMULATOR("a fault is injected");
  CreateWithOthers(2 * kMiB);
  UseOthers();
  ExpectOk(Reclaim());
  BeginAll();
  ExpectFailure(With({.call = "cuEventRecord", .result = CUDA_ERROR_INVALID_VALUE, .count = group().size()},
                     [&] { return Run([&](Rank& rank) { return AllocateOn(rank, 2 * kMiB).status(); }); }),
                StatusCode::kDriverError, "pool gradients");
  EndAll();
  DestroyAll();
  ExpectAllFreeAgain();  // no block is lost
}

TEST_F(SymmetricCapture, GivesABlockItsFencesOnceTheGraphIsGone) {
  CreateWithOthers(2 * kMiB);
  BeginAll();
  ForEach([&](Rank& rank) {
    const CUdeviceptr block = AllocateOn(rank, 2 * kMiB).value();
    ExpectOk({PoolOf(rank).RecordStream(block, KeyOfStream(OtherOf(rank), rank.number)), PoolOf(rank).Free(block)});
  });
  EndAll();
  ExpectOk(Reclaim());
  EXPECT_EQ(StatisticsOf(0).pending_bytes, 2 * kMiB);
  DestroyAll();
  ExpectAllFreeAgain();
}

TEST_F(SymmetricCapture, RecordsNoFenceForAGraphsBlockBeforeTheGraphIsGone) {
  COMMPOOL_REQUIRE_EMULATOR("it counts calls");
  CreateWithOthers(4 * kMiB);
  BeginAll();
  const uint64_t records = CallCount("cuEventRecord");
  ForEach([&](Rank& rank) {
    const CUdeviceptr in_capture = AllocateOn(rank, 2 * kMiB).value();
    const CUdeviceptr after_capture = AllocateOn(rank, 2 * kMiB).value();
    for (const CUdeviceptr block : {in_capture, after_capture}) {
      ExpectOk({PoolOf(rank).RecordStream(block, KeyOfStream(OtherOf(rank), rank.number))});
    }
    ExpectOk({PoolOf(rank).Free(in_capture), End(rank), PoolOf(rank).Free(after_capture)});
  });
  EXPECT_EQ(CallCount("cuEventRecord"), records);
  DestroyAll();
  ExpectAllFreeAgain();
  EXPECT_GT(CallCount("cuEventRecord"), records) << "once the graph is gone its blocks owe their fences";
}

// The block's work has no event, and one that is recorded now would pull the other stream into the capture.
TEST_F(SymmetricCapture, GivesNoOtherStreamWhatItsStreamUsedBefore) {
  CreateWithOthers(2 * kMiB);
  Free(Allocate(2 * kMiB));
  ExpectOk(Reclaim());
  BeginAll();
  ExpectFailure(Run([&](Rank& rank) {
                  return PoolOf(rank).Allocate(2 * kMiB, KeyOfStream(OtherOf(rank), rank.number)).status();
                }),
                StatusCode::kFailedPrecondition, "captures");
  EndAll();
  DestroyAll();
  ExpectAllFreeAgain();
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
