// src/pool/blocks/stream_progress in modelled time: learns which streams are done with free memory.
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

  // Whether the stream has finished; then its free memory is idle.
  bool IsIdle(internal::engine::StreamKey stream);
  // Asks every stream that may still use free memory, and the marks behind streams that still work.
  void Poll();
  // Polls like StreamProgress until no stream uses free memory any more, or for so long. Returns whether it had to
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
