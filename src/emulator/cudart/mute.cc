#include "src/emulator/cudart/mute.h"

namespace commpool::internal::emulated_cudart {

namespace {

struct State {
  int depth = 0;
  commpoolEmulatorMuted seen = {};
};

State& OfThisThread() {
  thread_local State state;
  return state;
}

}  // namespace

bool IsMuted() { return OfThisThread().depth != 0; }

void NoteMuted() { ++OfThisThread().seen.launches; }

void NoteMustRunAtOnce() { OfThisThread().seen.must_run_at_once = 1; }

}  // namespace commpool::internal::emulated_cudart

using commpool::internal::emulated_cudart::OfThisThread;

extern "C" {

#pragma GCC visibility push(default)

void commpoolEmulatorMuteBegin() {
  auto& state = OfThisThread();
  if (state.depth++ == 0) state.seen = {};
}

commpoolEmulatorMuted commpoolEmulatorMuteEnd() {
  auto& state = OfThisThread();
  --state.depth;
  return state.seen;
}

#pragma GCC visibility pop

}  // extern "C"
