// Lets a handler of a signal end a wait: in a Python program Ctrl-C ends every wait of the library within a moment.
// Python runs its handlers between two lines of Python only, so a wait in C has to look for them itself.
#pragma once

#include <atomic>
#include <chrono>
#include <future>

namespace commpool::internal {

// Cuts a wait with a deadline into slices, and looks at Python's signals between two of them. Its thread holds no lock
// there that a free takes: a handler may free memory.
class [[nodiscard]] WaitSlices {
 public:
  using Moment = std::chrono::steady_clock::time_point;

  explicit WaitSlices(Moment deadline);

  // Until when the wait may go on without a look.
  Moment end() const { return end_; }
  // Whether the wait has to end: its deadline has passed, or a handler raised an exception. Python raises that once the
  // call has returned. Within a slice this only reads the clock.
  bool Over();

 private:
  const Moment deadline_;
  Moment end_;
};

// A call whose parts run on threads of their own. Python's handlers run on its main thread alone: where one of them
// raises while that thread waits for a part, the waits of all parts end.
class InterruptibleParts {
 public:
  // While it exists, its thread does a part.
  class Part {
   public:
    explicit Part(const InterruptibleParts& call);
    ~Part();
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;
  };

  // Waits until the part has ended, which tells so by the future.
  void Await(const std::future<void>& ended);

 private:
  std::atomic<bool> interrupted_ = false;
};

}  // namespace commpool::internal
