#include "tools/stress/engine/capture.h"

#include "src/driver/diagnosis.h"

namespace commpool::cli {

StressCapture::StressCapture(StressMachine& machine, size_t pool, CUstream stream, const std::function<void()>& body)
    : machine_(machine), cuda_(machine.driver().cuda), stream_(stream) {
  // Other workers would break the capture, because they wait for the device.
  const std::unique_lock alone(machine_.capture_mutex());
  Expect(cuda_.cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "cuStreamBeginCapture");
  Result<internal::CaptureHandle> capture = machine_.runtime().BeginCapture(machine_.pools()[pool], stream_);
  if (capture.ok()) body();
  const Status ended = capture.ok() ? machine_.runtime().EndCapture(*capture) : capture.status();
  if (!ended.ok()) machine_.Violate("capture: " + ended.message());
  Expect(cuda_.cuStreamEndCapture(stream_, &graph_), "cuStreamEndCapture");
  if (graph_ != nullptr) Expect(cuda_.cuGraphInstantiate(&executable_, graph_, 0), "cuGraphInstantiate");
}

StressCapture::~StressCapture() {
  Expect(cuda_.cuStreamSynchronize(stream_), "cuStreamSynchronize");
  if (executable_ != nullptr) Expect(cuda_.cuGraphExecDestroy(executable_), "cuGraphExecDestroy");
  if (graph_ != nullptr) Expect(cuda_.cuGraphDestroy(graph_), "cuGraphDestroy");
}

void StressCapture::Replay() {
  if (executable_ != nullptr) Expect(cuda_.cuGraphLaunch(executable_, stream_), "cuGraphLaunch");
}

void StressCapture::Expect(CUresult result, const char* call) {
  const Status status = internal::CheckCuda(machine_.driver(), result, {.call = call, .device = 0});
  if (!status.ok()) machine_.Violate("capture: " + status.message());
}

}  // namespace commpool::cli
