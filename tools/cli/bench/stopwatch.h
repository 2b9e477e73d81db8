// Times work on a device: by the host's clock, on the emulator by its modelled one. Any thread.
#pragma once

#include <chrono>
#include <functional>

#include "src/emulator/extension.h"
#include "src/library/base/try.h"
#include "tools/cli/solo_device.h"

namespace commpool::cli {

class Stopwatch {
 public:
  explicit Stopwatch(const SoloDevice& device)
      : emulated_now_(device.emulated() ? reinterpret_cast<decltype(&commpoolEmulatorNow)>(
                                              device.driver().extension("commpoolEmulatorNow"))
                                        : nullptr) {}

  // Microseconds that `act` takes, which includes the wait for what it starts.
  Result<double> Time(const std::function<Status()>& act) const {
    const double start = Now();
    COMMPOOL_TRY(act());
    return Now() - start;
  }

 private:
  double Now() const {
    if (emulated_now_ != nullptr) return emulated_now_();
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  decltype(&commpoolEmulatorNow) emulated_now_;
};

}  // namespace commpool::cli
