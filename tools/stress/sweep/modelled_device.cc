#include "tools/stress/sweep/modelled_device.h"

#include <algorithm>
#include <string_view>

#include "src/emulator/cuda/latency.h"

namespace commpool::cli {

namespace {

// The host's work between two events.
constexpr double kHostMicroseconds = 5;
// A kernel's start, and how fast it goes through its block: some kernels stream, most compute.
constexpr double kKernelMicroseconds = 4;
constexpr double kBytesPerMicrosecond = 5e5;

// How many operations a stream takes before the host must wait.
constexpr size_t kMostQueued = 1000;

// Held work ends where an allocation waits longer than this (rescue.cc).
constexpr double kReleasedAfterMicroseconds = 3000;

// For each event, the next event on the stream that `stream_of` gives; the end where there is none.
template <typename StreamOf>
std::vector<uint32_t> NextEvents(const Trace& trace, StreamOf stream_of) {
  const auto end = static_cast<uint32_t>(trace.events.size());
  std::vector<uint32_t> next_on(trace.streams + 1, end);
  std::vector<uint32_t> next(end, end);
  for (uint32_t index = end; index-- > 0;) {
    const TraceEvent& event = trace.events[index];
    const uint32_t wanted = stream_of(event);
    if (wanted < trace.streams) next[index] = next_on[wanted];
    next_on[event.stream] = index;
    if (event.also_on < trace.streams) next_on[event.also_on] = index;
  }
  return next;
}

}  // namespace

ModelledDevice::ModelledDevice(const Trace& trace, ModelledWork work)
    : work_(work), ends_(trace.streams, 0), queues_(trace.streams) {
  if (work_ == ModelledWork::kTimed) return;
  next_event_ = NextEvents(trace, [](const TraceEvent& event) { return event.stream; });
  next_of_other_ = NextEvents(trace, [](const TraceEvent& event) { return event.also_on; });
}

void ModelledDevice::Begin(size_t index) {
  index_ = index;
  if (work_ == ModelledWork::kTimed) {
    now_ += kHostMicroseconds;
  } else {
    now_ = static_cast<double>(index);
  }
}

void ModelledDevice::Launch(const TraceEvent& event) {
  if (event.also_on == TraceEvent::kNoStream) return LaunchOn(event.stream, event.bytes, next_event_);
  MakeWait(event.also_on, End(event.stream));
  LaunchOn(event.stream, event.bytes / 2, next_event_);
  LaunchOn(event.also_on, event.bytes - event.bytes / 2, next_of_other_);
}

void ModelledDevice::LaunchOn(uint32_t stream, uint64_t bytes, const std::vector<uint32_t>& next_event) {
  double& end = ends_[stream];
  if (work_ == ModelledWork::kTimed) {
    std::deque<double>& queue = queues_[stream];
    if (queue.size() == kMostQueued) {
      now_ = std::max(now_, queue.front());
      queue.pop_front();
    }
    end = std::max(end, now_) + kKernelMicroseconds + static_cast<double>(bytes) / kBytesPerMicrosecond;
    queue.push_back(end);
  } else {
    end = std::max(end, static_cast<double>(next_event[index_]));
  }
}

void ModelledDevice::MakeWait(uint32_t stream, double time) { ends_[stream] = std::max(ends_[stream], time); }

void ModelledDevice::WaitForAll() {
  if (work_ == ModelledWork::kTimed) {
    now_ = Finish();
    return;
  }
  for (double& end : ends_) end = std::min(end, now_);
  released_ = now_;
}

void ModelledDevice::Wait(double microseconds, double in_all) {
  if (work_ == ModelledWork::kTimed) {
    now_ += microseconds;
  } else if (in_all > kReleasedAfterMicroseconds) {
    WaitForAll();
  }
}

void ModelledDevice::Call(const char* name, uint64_t bytes) { Spend(name, internal::emulator::LatencyOf(name, bytes)); }

void ModelledDevice::Open(size_t pages, uint64_t bytes) {
  Spend("cuMemSetAccess", internal::emulator::AccessLatency(pages, 1, bytes));
}

void ModelledDevice::Unmap(size_t pages, uint64_t bytes) {
  Spend("cuMemUnmap", static_cast<double>(pages) * internal::emulator::LatencyOf("cuMemUnmap", bytes / pages));
}

void ModelledDevice::Spend(const char* call, double microseconds) {
  ++calls_;
  if (std::string_view(call).starts_with("cuMem")) ++memory_calls_;
  driver_us_ += microseconds;
  if (work_ == ModelledWork::kTimed) now_ += microseconds;
}

double ModelledDevice::Finish() const { return std::max(now_, *std::max_element(ends_.begin(), ends_.end())); }

}  // namespace commpool::cli
