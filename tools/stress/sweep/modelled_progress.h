// What src/pool/blocks/stream_progress does, in modelled time: learns which streams are done with free memory.
#ifndef COMMPOOL_TOOLS_STRESS_SWEEP_MODELLED_PROGRESS_H_
#define COMMPOOL_TOOLS_STRESS_SWEEP_MODELLED_PROGRESS_H_

#include <functional>
#include <vector>

#include "src/engine/caching_engine.h"
#include "tools/stress/sweep/modelled_device.h"

namespace commpool::cli {

class ModelledProgress {
 public:
  ModelledProgress(ModelledDevice& device, internal::engine::CachingEngine& engine)
      : device_(device), engine_(engine) {}

  // Whether the stream stands still, and then its free memory is idle.
  bool IsIdle(internal::engine::StreamKey stream);
  // Asks about every stream that may still use free memory, and what is recorded behind those that go on.
  void Poll();
  // Polls until no stream may use free memory any more, or for so long, as StreamProgress waits. Whether it had to
  // wait.
  bool Await(double limit_us, const std::function<void()>& poll_fences);

 private:
  struct Checkpoint {
    internal::engine::StreamKey stream = 0;
    internal::engine::Moment moment = 0;
    ModelledDevice::Mark mark;
  };

  ModelledDevice& device_;
  internal::engine::CachingEngine& engine_;
  std::vector<Checkpoint> checkpoints_;
};

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_STRESS_SWEEP_MODELLED_PROGRESS_H_
