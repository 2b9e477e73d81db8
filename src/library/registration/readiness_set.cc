#include "src/library/registration/readiness_set.h"

#include <sys/eventfd.h>

#include <array>

namespace commpool::internal {

namespace {

constexpr uint64_t kWakeTag = UINT64_MAX;

epoll_event EventOf(Interest interest, uint64_t tag) {
  return {.events = static_cast<uint32_t>(interest), .data = {.u64 = tag}};
}

}  // namespace

Result<ReadinessSet> ReadinessSet::Make() {
  FileDescriptor set(epoll_create1(EPOLL_CLOEXEC));
  if (!set.valid()) return SystemFailure("epoll_create1 failed");
  FileDescriptor wake(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!wake.valid()) return SystemFailure("eventfd failed");
  epoll_event event = EventOf(Interest::kInput, kWakeTag);
  if (epoll_ctl(set.get(), EPOLL_CTL_ADD, wake.get(), &event) != 0) return SystemFailure("epoll_ctl failed");
  return ReadinessSet(std::move(set), std::move(wake));
}

Status ReadinessSet::Add(int descriptor, Interest interest, size_t tag) {
  epoll_event event = EventOf(interest, tag);
  return epoll_ctl(set_.get(), EPOLL_CTL_ADD, descriptor, &event) == 0 ? Status() : SystemFailure("epoll_ctl failed");
}

void ReadinessSet::Change(int descriptor, Interest interest, size_t tag) {
  epoll_event event = EventOf(interest, tag);
  static_cast<void>(epoll_ctl(set_.get(), EPOLL_CTL_MOD, descriptor, &event));
}

void ReadinessSet::Remove(int descriptor) {
  static_cast<void>(epoll_ctl(set_.get(), EPOLL_CTL_DEL, descriptor, nullptr));
}

// The write fails only where the counter is full. Then many wakes came before, and the next wait returns at once
// anyway.
void ReadinessSet::Wake() { static_cast<void>(eventfd_write(wake_.get(), 1)); }

std::vector<size_t> ReadinessSet::Wait(Deadline deadline) {
  std::array<epoll_event, 256> events;
  const int count = epoll_wait(set_.get(), events.data(), static_cast<int>(events.size()), PollWait(deadline));
  std::vector<size_t> tags;
  for (int index = 0; index < count; ++index) {
    const uint64_t tag = events[static_cast<size_t>(index)].data.u64;
    if (tag != kWakeTag) {
      tags.push_back(tag);
      continue;
    }
    eventfd_t wakes = 0;
    static_cast<void>(eventfd_read(wake_.get(), &wakes));
  }
  return tags;
}

}  // namespace commpool::internal
