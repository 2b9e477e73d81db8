#include "src/registration/overdue.h"

#include <chrono>

#include "src/base/host_failure.h"
#include "src/base/log.h"
#include "src/base/signals_blocked.h"

namespace commpool::internal {

Overdue::Overdue(const std::string& what, uint64_t deadline_ms) {
  BestEffort([&] {
    over_.emplace();
    const SignalsBlocked in_the_thread;
    watcher_ = std::thread([line = what + " has not returned after " + std::to_string(deadline_ms) +
                                   " ms; the pool's calls that register or unmap wait for it",
                            over = over_->get_future(), deadline_ms] {
      if (over.wait_for(std::chrono::milliseconds(deadline_ms)) == std::future_status::ready) return;
      BestEffort([&] { Log(LogLevel::kWarning, line); });
    });
  });
}

Overdue::~Overdue() {
  if (!watcher_.joinable()) return;
  over_->set_value();
  watcher_.join();
}

}  // namespace commpool::internal
