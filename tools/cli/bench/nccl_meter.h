// Measures a phase that ranks go through together. One thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>

#include "commpool/status.h"
#include "src/emulator/extension.h"
#include "src/library/driver/loader.h"
#include "tools/cli/ranks.h"

namespace commpool::cli {

inline constexpr const char* kNcclFunctions[] = {
#define COMMPOOL_NCCL(name, version) #name,
#include "src/library/driver/nccl_functions.inc"
#undef COMMPOOL_NCCL
};

// The host's time plus the emulator's modelled time, and the emulator's count of NCCL calls.
class NcclMeter {
 public:
  explicit NcclMeter(const internal::Driver& driver)
      : now_(reinterpret_cast<decltype(&commpoolEmulatorNow)>(driver.extension("commpoolEmulatorNow"))),
        count_(reinterpret_cast<decltype(&commpoolEmulatorCallCount)>(driver.extension("commpoolEmulatorCallCount"))) {}

  double Microseconds() const {
    if (now_ != nullptr) return now_();
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double, std::micro>(now).count();
  }
  // Of this process; nothing on a GPU, where nobody counts.
  std::optional<uint64_t> Calls() const {
    if (count_ == nullptr) return std::nullopt;
    uint64_t calls = 0;
    for (const char* const name : kNcclFunctions) calls += count_(name);
    return calls;
  }

 private:
  double (*now_)();
  uint64_t (*count_)(const char*);
};

struct Cost {
  double microseconds = 0;  // of the slowest rank
  std::optional<uint64_t> calls;
};

inline nlohmann::json ToJson(const Cost& cost) {
  return {{"us", cost.microseconds}, {"nccl_calls", cost.calls ? nlohmann::json(*cost.calls) : nlohmann::json()}};
}

// The ranks begin the phase together.
template <typename Phase>
Result<Cost> Measure(const Ranks& ranks, const NcclMeter& meter, Phase&& phase) {
  ranks.Wait();
  const std::optional<uint64_t> calls = meter.Calls();
  const double start = meter.Microseconds();
  Status status = phase();
  if (!status.ok()) return status;
  Cost cost{.microseconds = ranks.Max(meter.Microseconds() - start), .calls = meter.Calls()};
  if (cost.calls) *cost.calls -= *calls;
  return cost;
}

}  // namespace commpool::cli
