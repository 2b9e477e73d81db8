// Overdue: says in the log that a function of the program takes too long, while it still runs. Nobody can end such a
// function, and what waits behind it would be a riddle.
#ifndef COMMPOOL_SRC_LIBRARY_REGISTRATION_OVERDUE_H_
#define COMMPOOL_SRC_LIBRARY_REGISTRATION_OVERDUE_H_

#include <cstdint>
#include <future>
#include <string>
#include <thread>

namespace commpool::internal {

// Lives as long as the function runs. Best effort: a host without a thread goes without the line.
class [[nodiscard]] Overdue {
 public:
  // `what` begins the line that comes once the deadline has passed.
  Overdue(const std::string& what, uint64_t deadline_ms);
  ~Overdue();
  Overdue(const Overdue&) = delete;
  Overdue& operator=(const Overdue&) = delete;

 private:
  std::promise<void> over_;
  std::thread watcher_;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_LIBRARY_REGISTRATION_OVERDUE_H_
