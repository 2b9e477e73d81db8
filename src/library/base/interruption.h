// Lets a handler of a signal end a wait: in a Python program Ctrl-C ends every wait of the library within a moment.
// Python runs its handlers between two lines of Python only, so a wait in C has to look for them itself.
#ifndef COMMPOOL_SRC_LIBRARY_BASE_INTERRUPTION_H_
#define COMMPOOL_SRC_LIBRARY_BASE_INTERRUPTION_H_

#include <chrono>

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

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_LIBRARY_BASE_INTERRUPTION_H_
