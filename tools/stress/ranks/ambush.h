// The fault that waits in a process of `commpool_stress ranks`, and acts at its point.
//
// One a process: what is wrapped around functions of libc and of the driver finds it without a context. Armed and
// disarmed by the program's thread; any thread may reach a point.
#ifndef COMMPOOL_TOOLS_STRESS_RANKS_AMBUSH_H_
#define COMMPOOL_TOOLS_STRESS_RANKS_AMBUSH_H_

#include <atomic>
#include <chrono>
#include <functional>

#include "tools/stress/ranks/fault.h"

namespace commpool::cli::stress_ranks {

// Whose calls the wrapped functions see.
enum class Caller { kLibrary, kProgram, kStranger };
// Of this thread; the library's own threads are what nobody declared.
Caller CallerOfThread();
void DeclareThread(Caller caller);

class Ambush {
 public:
  // `at_point` is told before the fault happens; `flood` starts strangers at a port.
  struct Effects {
    std::function<void(Point)> at_point;
    std::function<void(int listener)> flood;
    std::chrono::milliseconds late{0};
    std::chrono::milliseconds delay{0};
  };
  // Null where the process has none.
  static Ambush* OfProcess();

  explicit Ambush(Effects effects);
  ~Ambush();
  Ambush(const Ambush&) = delete;
  Ambush& operator=(const Ambush&) = delete;

  void Arm(const Fault& fault);
  // What did not come by its point acts now, as between two calls. What the library does on threads of its own gets
  // a moment.
  void Spring();

  // Whether a fault waits at the point and would act now; counts the passing otherwise.
  bool Waits(Point point);
  // Acts. Returns where the fault lets the process go on.
  void Act(Point point);
  void Reach(Point point) {
    if (Waits(point)) Act(point);
  }

  const Effects& effects() const { return effects_; }
  // Of the fault that waits: the driver is to refuse the call.
  bool refuses() const { return fault_.kind == Kind::kRefuse; }

 private:
  const Effects effects_;
  Fault fault_;
  void AwaitLibrary() const;

  std::atomic<bool> armed_{false};
  std::atomic<int> skip_{0};
};

}  // namespace commpool::cli::stress_ranks

#endif  // COMMPOOL_TOOLS_STRESS_RANKS_AMBUSH_H_
