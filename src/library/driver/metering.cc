#include "src/library/driver/metering.h"

#include <algorithm>
#include <atomic>
#include <chrono>

#include "src/library/base/failure.h"

namespace commpool::internal {

namespace {

// How often a function was called, and how long all its calls took.
struct Counter {
  std::atomic<uint64_t> calls{0};
  std::atomic<int64_t> nanoseconds{0};
};

// The process's meter: the functions that it calls in turn, and its clock.
struct Meter {
  CudaDriver driver;  // the real functions
  EmulatorNowFunction emulator_now = nullptr;

  int64_t NowNanoseconds() const {
    if (emulator_now != nullptr) return static_cast<int64_t>(emulator_now() * 1000);
    return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
};

constinit Meter the_meter;

// What stands in a metered table in the place of the driver's function, and what it has counted.
template <auto kFunction, typename Function = decltype(kFunction)>
struct Metered;

template <auto kFunction, typename... Arguments>
struct Metered<kFunction, CUresult (*CudaDriver::*)(Arguments...)> {
  static CUresult Call(Arguments... arguments) {
    const int64_t begin = the_meter.NowNanoseconds();
    const CUresult result = (the_meter.driver.*kFunction)(arguments...);
    const int64_t end = the_meter.NowNanoseconds();
    counter.calls.fetch_add(1, std::memory_order_relaxed);
    counter.nanoseconds.fetch_add(end - begin, std::memory_order_relaxed);
    return result;
  }

  static inline constinit Counter counter;
};

CudaDriver MeteredTable() {
  CudaDriver table;
#define COMMPOOL_CUDA(name, version) table.name = &Metered<&CudaDriver::name>::Call;
#include "src/library/driver/cuda_functions.inc"
#undef COMMPOOL_CUDA
  return table;
}

void AppendIfCalled(const char* name, const Counter& counter, std::vector<MeteredFunction>& functions) {
  const uint64_t calls = counter.calls.load(std::memory_order_relaxed);
  if (calls == 0) return;
  const auto nanoseconds = static_cast<double>(counter.nanoseconds.load(std::memory_order_relaxed));
  functions.push_back({name, calls, nanoseconds / 1000});
}

}  // namespace

Status MeterDriver(Driver& driver) {
  const CudaDriver metered = MeteredTable();
  if (driver.cuda.cuInit == metered.cuInit) return Status();
  if (the_meter.driver.cuInit == nullptr) {
    the_meter.driver = driver.cuda;
    the_meter.emulator_now = reinterpret_cast<EmulatorNowFunction>(driver.extension(kEmulatorNow));
  } else if (the_meter.driver.cuInit != driver.cuda.cuInit) {
    return FailedPrecondition("the process meters another driver already: ", driver.description, " is not metered");
  }
  driver.cuda = metered;
  return Status();
}

std::vector<MeteredFunction> MeteredFunctions() {
  std::vector<MeteredFunction> functions;
#define COMMPOOL_CUDA(name, version) AppendIfCalled(#name, Metered<&CudaDriver::name>::counter, functions);
#include "src/library/driver/cuda_functions.inc"
#undef COMMPOOL_CUDA
  std::stable_sort(functions.begin(), functions.end(),
                   [](const MeteredFunction& a, const MeteredFunction& b) { return a.microseconds > b.microseconds; });
  return functions;
}

}  // namespace commpool::internal
