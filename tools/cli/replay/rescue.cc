#include "tools/cli/replay/rescue.h"

#include <chrono>

namespace commpool::cli {

Rescue::Rescue(TraceWork& work) : work_(work), thread_([this] { Watch(); }) {}

Rescue::~Rescue() {
  stop_ = true;
  thread_.join();
}

void Rescue::Watch() {
  uint64_t seen = 0;
  int looks = 0;  // at the same call
  while (!stop_) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const uint64_t now = steps_.load(std::memory_order_relaxed);
    looks = now == seen ? looks + 1 : 0;
    seen = now;
    constexpr int kTooLong = 3;
    if (now % 2 == 1 && looks >= kTooLong) work_.ReleaseAll();
  }
}

}  // namespace commpool::cli
