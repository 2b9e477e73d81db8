#include "tools/stress/host/host_faults.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>

namespace commpool::cli {

namespace {

// The failing functions have the system's signatures, so their state must be global.
struct Plan {
  std::atomic<HostResource> resource{HostResource::kThread};
  std::atomic<uint64_t> nth{0};
  std::atomic<uint64_t> count{0};
  std::atomic<bool> fired{false};
  std::atomic<Place> place{Place::kUntold};
};
constinit Plan plan;
constinit thread_local bool inside = false;

// Shows where the fault strikes, to help find its cause.
void ShowPlace() {
  void* frames[48];
  backtrace_symbols_fd(frames, backtrace(frames, 48), STDERR_FILENO);
}

bool Fails(HostResource resource) {
  if (!inside || resource != plan.resource.load(std::memory_order_relaxed)) return false;
  if (plan.count.fetch_add(1, std::memory_order_relaxed) + 1 != plan.nth.load(std::memory_order_relaxed)) return false;
  plan.fired = true;
  if (plan.place == Place::kTold) ShowPlace();
  return true;
}

template <typename Function>
Function* SystemFunction(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

// What a thread that the library starts gets.
struct Start {
  void* (*routine)(void*);
  void* argument;
};

void* RunInside(void* argument) {
  const Start start = *static_cast<Start*>(argument);
  std::free(argument);
  inside = true;
  return start.routine(start.argument);
}

}  // namespace

void HostFaults::Plan(HostResource resource, uint64_t nth, Place place) {
  plan.resource = resource;
  plan.nth = nth;
  plan.count = 0;
  plan.place = place;
}

uint64_t HostFaults::count() { return plan.count; }
bool HostFaults::fired() { return plan.fired; }

HostFaults::Inside::Inside() { inside = true; }
HostFaults::Inside::~Inside() { inside = false; }
HostFaults::Outside::Outside() : was_inside_(inside) { inside = false; }
HostFaults::Outside::~Outside() { inside = was_inside_; }

}  // namespace commpool::cli

namespace cli = commpool::cli;
using cli::HostResource;

// NOLINTBEGIN: the program's own versions of the system's functions, under the system's names
#define COMMPOOL_INTERPOSED __attribute__((visibility("default")))

extern "C" {

COMMPOOL_INTERPOSED int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*routine)(void*),
                                       void* argument) {
  static auto* const create = cli::SystemFunction<decltype(pthread_create)>("pthread_create");
  if (!cli::inside) return create(thread, attributes, routine, argument);
  if (cli::Fails(HostResource::kThread)) return EAGAIN;
  auto* const start = static_cast<cli::Start*>(std::malloc(sizeof(cli::Start)));
  if (start == nullptr) return EAGAIN;
  *start = {routine, argument};
  const int result = create(thread, attributes, cli::RunInside, start);
  if (result != 0) std::free(start);
  return result;
}

COMMPOOL_INTERPOSED int socket(int domain, int type, int protocol) noexcept {
  static auto* const make = cli::SystemFunction<int(int, int, int)>("socket");
  if (!cli::Fails(HostResource::kDescriptor)) return make(domain, type, protocol);
  errno = EMFILE;
  return -1;
}

COMMPOOL_INTERPOSED int accept4(int listener, sockaddr* address, socklen_t* bytes, int flags) {
  static auto* const accept_on = cli::SystemFunction<int(int, sockaddr*, socklen_t*, int)>("accept4");
  if (!cli::Fails(HostResource::kDescriptor)) return accept_on(listener, address, bytes, flags);
  errno = EMFILE;
  return -1;
}

COMMPOOL_INTERPOSED int eventfd(unsigned int value, int flags) noexcept {
  static auto* const make = cli::SystemFunction<int(unsigned int, int)>("eventfd");
  if (!cli::Fails(HostResource::kDescriptor)) return make(value, flags);
  errno = EMFILE;
  return -1;
}

}  // extern "C"
// NOLINTEND
