// The fault that waits in a process of `commpool_stress ranks` and acts at its point.
//
// One for each process: the wrappers of libc's and the driver's functions find it without a context. The program's
// thread arms and disarms it; any thread may reach a point.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>

#include "tools/stress/ranks/fault.h"

namespace commpool::cli::stress_ranks {

// Who made the call that a wrapped function sees.
enum class Caller { kLibrary, kProgram, kStranger };
// The caller on this thread. Threads that nobody declared are the library's own.
Caller CallerOfThread();
void DeclareThread(Caller caller);

class ArmedFault {
 public:
  // `at_point` is called before the fault happens; `flood` starts strangers at a port.
  struct Effects {
    std::function<void(Point)> at_point;
    std::function<void(int listener)> flood;
    std::chrono::milliseconds late{0};
    std::chrono::milliseconds delay{0};
  };
  // Null where the process has none.
  static ArmedFault* OfProcess();

  explicit ArmedFault(Effects effects);
  ~ArmedFault();
  ArmedFault(const ArmedFault&) = delete;
  ArmedFault& operator=(const ArmedFault&) = delete;

  void Arm(const Fault& fault);
  // A fault that has not reached its point acts now, between two calls. The library's own threads get a moment
  // first.
  void ActNow();

  // Whether a fault waits at this point and would act now; otherwise counts the passing.
  bool Waits(Point point);
  // Acts. Returns where the fault lets the process continue.
  void Act(Point point);
  void Reach(Point point) {
    if (Waits(point)) Act(point);
  }

  const Effects& effects() const { return effects_; }
  // Whether the driver must refuse the call.
  bool refuses() const { return fault_.kind == Kind::kRefuse; }

 private:
  const Effects effects_;
  Fault fault_;
  void AwaitLibrary() const;

  std::atomic<bool> armed_{false};
  std::atomic<int> skip_{0};
};

}  // namespace commpool::cli::stress_ranks
