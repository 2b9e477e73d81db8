#include "tools/stress/sweep/modelled_progress.h"

#include <algorithm>
#include <set>

namespace commpool::cli {

namespace engine = internal::engine;

bool ModelledProgress::IsIdle(engine::StreamKey stream) {
  device_.Call("cuStreamQuery");
  const bool idle = device_.IsOver(device_.Record(static_cast<uint32_t>(stream)));
  if (idle) engine_.StreamIdle(stream, engine_.Now());
  return idle;
}

void ModelledProgress::Poll() {
  const engine::Moment now = engine_.Now();
  for (const engine::StreamKey stream : engine_.StreamsInUse()) {
    if (IsIdle(stream)) continue;
    const ModelledDevice::Mark mark = device_.Record(static_cast<uint32_t>(stream));
    const bool known = std::any_of(checkpoints_.begin(), checkpoints_.end(), [&](const Checkpoint& checkpoint) {
      return checkpoint.stream == stream && checkpoint.moment == now;
    });
    if (known) continue;
    device_.Call("cuEventRecord");
    checkpoints_.push_back({stream, now, mark});
  }
  std::set<engine::StreamKey> at_work;  // ask no fence behind a stream's first one that has not passed
  std::erase_if(checkpoints_, [&](const Checkpoint& checkpoint) {
    if (at_work.contains(checkpoint.stream)) return false;
    device_.Call("cuEventQuery");
    if (!device_.IsOver(checkpoint.mark)) {
      at_work.insert(checkpoint.stream);
      return false;
    }
    engine_.StreamIdle(checkpoint.stream, checkpoint.moment);
    return true;
  });
}

bool ModelledProgress::Await(double limit_us, const std::function<void()>& poll_fences) {
  const double begin = device_.driver_us();
  double idle = 0;
  for (int polls = 0;; ++polls) {
    poll_fences();
    Poll();
    if (engine_.StreamsInUse().empty()) return polls > 1;
    const double waited = device_.driver_us() - begin + idle;
    if (waited > limit_us) return polls > 0;
    device_.Wait(waited / 8, waited);
    idle += waited / 8;
  }
}

}  // namespace commpool::cli
