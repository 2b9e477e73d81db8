#include "src/library/registration/overdue.h"

#include <chrono>

#include "src/library/base/log.h"
#include "src/library/base/start_thread.h"

namespace commpool::internal {

Overdue::Overdue(const std::string& what, uint64_t deadline_ms) {
  Result<std::thread> watcher =
      StartThread("the watcher of a function", [line = what + " has not returned after " + std::to_string(deadline_ms) +
                                                       " ms; the pool's calls that register or unmap wait for it",
                                                over = over_.get_future().share(), deadline_ms] {
        if (over.wait_for(std::chrono::milliseconds(deadline_ms)) == std::future_status::ready) return;
        Log(LogLevel::kWarning, line);
      });
  if (watcher.ok()) watcher_ = std::move(*watcher);
}

Overdue::~Overdue() {
  if (!watcher_.joinable()) return;
  over_.set_value();
  watcher_.join();
}

}  // namespace commpool::internal
