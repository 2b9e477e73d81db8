#include "tools/stress/captured_block.h"

#include "src/library/base/try.h"
#include "src/library/driver/diagnosis.h"

namespace commpool::cli {

namespace {

// Keeps the first failure of several calls.
class Outcome {
 public:
  explicit Outcome(const internal::Driver& driver) : driver_(driver) {}
  void Note(const Status& status) {
    if (status_.ok()) status_ = status;
  }
  void Note(CUresult result, const char* call) { Note(internal::CheckCuda(driver_, result, {.call = call})); }
  const Status& status() const { return status_; }

 private:
  const internal::Driver& driver_;
  Status status_;
};

// The announced part of the capture.
Status Work(const internal::Driver& driver, internal::Runtime& runtime, internal::PoolHandle pool, CUstream stream,
            uint64_t bytes) {
  internal::CaptureHandle capture = COMMPOOL_TRY(runtime.BeginCapture(pool, stream));
  Outcome outcome(driver);
  Result<CUdeviceptr> block = runtime.AllocateFrom(pool, bytes, stream);
  // A full pool is no failure: then there is nothing to fill.
  if (block.ok()) {
    outcome.Note(driver.cuda.cuMemsetD8Async(*block, 1, bytes, stream), "cuMemsetD8Async");
    outcome.Note(runtime.Free(*block));
  } else if (block.status().code() != StatusCode::kExhausted) {
    outcome.Note(block.status());
  }
  outcome.Note(runtime.EndCapture(capture));
  return outcome.status();
}

}  // namespace

Status CaptureAndReplay(const internal::Driver& driver, internal::Runtime& runtime, internal::PoolHandle pool,
                        CUstream stream, uint64_t bytes) {
  const internal::CudaDriver& cuda = driver.cuda;
  Outcome outcome(driver);
  outcome.Note(cuda.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "cuStreamBeginCapture");
  if (!outcome.status().ok()) return outcome.status();
  outcome.Note(Work(driver, runtime, pool, stream, bytes));
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  outcome.Note(cuda.cuStreamEndCapture(stream, &graph), "cuStreamEndCapture");
  if (graph != nullptr) outcome.Note(cuda.cuGraphInstantiate(&executable, graph, 0), "cuGraphInstantiate");
  if (executable != nullptr) {
    for (int replay = 0; replay < 2; ++replay) outcome.Note(cuda.cuGraphLaunch(executable, stream), "cuGraphLaunch");
    outcome.Note(cuda.cuStreamSynchronize(stream), "cuStreamSynchronize");
    outcome.Note(cuda.cuGraphExecDestroy(executable), "cuGraphExecDestroy");
  }
  if (graph != nullptr) outcome.Note(cuda.cuGraphDestroy(graph), "cuGraphDestroy");
  return outcome.status();
}

}  // namespace commpool::cli
