// A capture that is announced to a pool, from its begin to the end of its graph, and the wait for the pool's last
// graph.
#pragma once

#include <cuda.h>

#include <memory>
#include <thread>

#include "src/library/pool/runtime.h"
#include "tests/driver/emulator_fixture.h"

namespace commpool::internal::testing {

class AnnouncedCapture {
 public:
  // The stream captures even where the pool refuses.
  Status Begin(Runtime& runtime, PoolHandle pool, CUstream stream,
               CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL) {
    runtime_ = &runtime;
    stream_ = stream;
    EXPECT_EQ(cuda().cuStreamBeginCapture(stream, mode), CUDA_SUCCESS);
    Result<CaptureHandle> capture = runtime.BeginCapture(pool, stream);
    if (capture.ok()) handle_ = *capture;
    return capture.status();
  }
  // Tells the pool first. A broken capture has no graph.
  Status End(CUresult expected = CUDA_SUCCESS) {
    Status status = EndForThePool();
    EndOnTheStream(expected);
    return status;
  }
  Status EndForThePool() { return runtime_->EndCapture(handle_); }
  void EndOnTheStream(CUresult expected = CUDA_SUCCESS) {
    CUgraph graph = nullptr;
    EXPECT_EQ(cuda().cuStreamEndCapture(stream_, &graph), expected);
    graph_.reset(graph);
  }
  CUgraph graph() const { return graph_.get(); }
  // Returns once the work is done.
  void Replay(CUstream stream) const {
    CUgraphExec replay = nullptr;
    ASSERT_EQ(cuda().cuGraphInstantiate(&replay, graph_.get(), 0), CUDA_SUCCESS);
    EXPECT_EQ(cuda().cuGraphLaunch(replay, stream), CUDA_SUCCESS);
    EXPECT_EQ(cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(cuda().cuGraphExecDestroy(replay), CUDA_SUCCESS);
  }
  // Else the graph ends with this object.
  void DestroyGraph() {
    EXPECT_NE(graph_, nullptr);
    graph_.reset();
  }

 private:
  struct EndOfGraph {
    void operator()(CUgraph graph) const { EXPECT_EQ(cuda().cuGraphDestroy(graph), CUDA_SUCCESS); }
  };
  static const CudaDriver& cuda() { return SharedDriver()->cuda; }

  Runtime* runtime_ = nullptr;
  CaptureHandle handle_ = 0;
  CUstream stream_ = nullptr;
  std::unique_ptr<CUgraph_st, EndOfGraph> graph_;
};

// Lets a stream wait for another, as a capture forks and joins.
inline void WaitFor(CUstream waiting, CUstream awaited) {
  const CudaDriver& cuda = SharedDriver()->cuda;
  CUevent event = nullptr;
  EXPECT_EQ(cuda.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  EXPECT_EQ(cuda.cuEventRecord(event, awaited), CUDA_SUCCESS);
  EXPECT_EQ(cuda.cuStreamWaitEvent(waiting, event, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuda.cuEventDestroy(event), CUDA_SUCCESS);
}

// A thread of the driver reports the end of a graph.
inline void AwaitAGraphsEnd(Pool& pool) {
  while (!pool.captures().any_gone()) std::this_thread::yield();
}

// As above, of all graphs. REQUIRES: no block of the pool is live.
inline void AwaitGraphsEnd(Pool& pool) {
  while (pool.Trim(0).ok() && pool.Statistics().reserved_bytes.current > 0) std::this_thread::yield();
}

}  // namespace commpool::internal::testing
