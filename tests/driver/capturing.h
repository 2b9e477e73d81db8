// Shared by the tests of captures and graphs: every capture is ended, and every graph destroyed with the test.
#pragma once

#include <cuda.h>
#include <gtest/gtest.h>

#include <vector>

namespace commpool::internal::testing {

// Put it over a fixture that is a DeviceTest.
template <typename Fixture>
class Capturing : public Fixture {
 protected:
  using Fixture::cuda;
  using Fixture::Fixture;
  using Fixture::MakeStream;

  ~Capturing() override {
    // A test that failed half-way leaves a capture open, and later tests' calls would fail.
    for (CUstream stream : began_) EndQuietly(stream);
    for (CUgraphExec executable : executables_) EXPECT_EQ(cuda().cuGraphExecDestroy(executable), CUDA_SUCCESS);
    for (CUgraph graph : graphs_) EXPECT_EQ(cuda().cuGraphDestroy(graph), CUDA_SUCCESS);
  }

  void Begin(CUstream stream, CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL) {
    ASSERT_EQ(cuda().cuStreamBeginCapture(stream, mode), CUDA_SUCCESS);
    began_.push_back(stream);
  }
  CUstream BeginOnNewStream(CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL) {
    const CUstream stream = MakeStream(CU_STREAM_NON_BLOCKING);
    Begin(stream, mode);
    return stream;
  }

  // The graph is destroyed with the test.
  CUgraph End(CUstream stream, CUresult expected = CUDA_SUCCESS) {
    CUgraph graph = nullptr;
    EXPECT_EQ(cuda().cuStreamEndCapture(stream, &graph), expected);
    Adopt(graph);
    return graph;
  }
  // Ends a capture that must have failed, with this error and without a graph.
  void EndFails(CUstream stream, CUresult error) { EXPECT_EQ(End(stream, error), nullptr); }
  CUgraphExec Instantiate(CUgraph graph) {
    CUgraphExec executable = nullptr;
    EXPECT_EQ(cuda().cuGraphInstantiate(&executable, graph, 0), CUDA_SUCCESS);
    if (executable != nullptr) executables_.push_back(executable);
    return executable;
  }
  // Destroys the graph before the test's end.
  CUresult Destroy(CUgraph graph) { return std::erase(graphs_, graph), cuda().cuGraphDestroy(graph); }
  CUresult Destroy(CUgraphExec executable) {
    return std::erase(executables_, executable), cuda().cuGraphExecDestroy(executable);
  }

  size_t NodesOf(CUgraph graph) {
    size_t count = 0;
    EXPECT_EQ(cuda().cuGraphGetNodes(graph, nullptr, &count), CUDA_SUCCESS);
    return count;
  }

 private:
  void Adopt(CUgraph graph) {
    if (graph != nullptr) graphs_.push_back(graph);
  }
  void EndQuietly(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (cuda().cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS || status == CU_STREAM_CAPTURE_STATUS_NONE) return;
    CUgraph graph = nullptr;
    cuda().cuStreamEndCapture(stream, &graph);
    Adopt(graph);
    ADD_FAILURE() << "the test left a capture open";
  }

  std::vector<CUstream> began_;
  std::vector<CUgraph> graphs_;
  std::vector<CUgraphExec> executables_;
};

}  // namespace commpool::internal::testing
