// The one way to start a thread of ours.
#pragma once

#include <functional>
#include <thread>

#include "commpool/status.h"

namespace commpool::internal {

// Starts a thread that gets no signals: they are for the program. kOutOfMemory where the host refuses the thread; then
// `body` does not run. `name` is for messages, as in "the watcher of the ranks", and lives as long as the process.
Result<std::thread> StartThread(const char* name, std::function<void()> body);

}  // namespace commpool::internal
