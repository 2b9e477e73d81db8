// One capture of a stress worker: its allocations, frees and launches, and its replays. On the worker's thread.
#ifndef COMMPOOL_TOOLS_STRESS_ENGINE_CAPTURE_H_
#define COMMPOOL_TOOLS_STRESS_ENGINE_CAPTURE_H_

#include <cuda.h>

#include <functional>

#include "tools/stress/engine/machine.h"

namespace commpool::cli {

class StressCapture {
 public:
  // Captures the work that `body` submits to the stream, and announces the capture to the pool. Notes violations.
  StressCapture(StressMachine& machine, size_t pool, CUstream stream, const std::function<void()>& body);
  // Waits for the launches, and destroys the graph.
  ~StressCapture();
  StressCapture(const StressCapture&) = delete;
  StressCapture& operator=(const StressCapture&) = delete;

  // Runs the work once more.
  void Replay();

 private:
  void Expect(CUresult result, const char* call);

  StressMachine& machine_;
  const internal::CudaDriver& cuda_;
  const CUstream stream_;
  CUgraph graph_ = nullptr;
  CUgraphExec executable_ = nullptr;
};

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_STRESS_ENGINE_CAPTURE_H_
