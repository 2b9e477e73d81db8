#include "tools/stress/ranks/worker.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "src/library/base/file_descriptor.h"
#include "src/library/driver/loader.h"
#include "tools/common/command.h"
#include "tools/stress/ranks/armed_fault.h"
#include "tools/stress/ranks/driver_points.h"
#include "tools/stress/ranks/program.h"
#include "tools/stress/ranks/record.h"

namespace commpool::cli::stress_ranks {

namespace {

using std::chrono::milliseconds;

constexpr size_t kMostAtOnce = 48;
constexpr int kStrangersWaitMs = 20;  // to connect, before a stranger says its words

// The address of a listener for its own host.
sockaddr_in AddressOf(int listener) {
  sockaddr_in address = {};
  socklen_t size = sizeof address;
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  if (address.sin_addr.s_addr == htonl(INADDR_ANY)) address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

internal::FileDescriptor ConnectTo(const sockaddr_in& address) {
  internal::FileDescriptor made(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (made.valid()) connect(made.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  return made;
}

void Flood(const sockaddr_in& address, uint64_t seed, const std::atomic<bool>& ending) {
  DeclareThread(Caller::kStranger);
  std::mt19937_64 random(seed);
  std::vector<internal::FileDescriptor> open;
  while (!ending.load()) {
    if (open.size() >= kMostAtOnce) open.erase(open.begin());
    open.push_back(ConnectTo(address));
    std::array<uint64_t, 32> noise = {};
    for (uint64_t& word : noise) word = random();
    const size_t bytes = random() % 3 == 0 ? 0 : random() % sizeof(noise);  // one in three says nothing
    pollfd connected = {open.back().get(), POLLOUT, 0};
    if (bytes > 0 && poll(&connected, 1, kStrangersWaitMs) > 0) send(connected.fd, noise.data(), bytes, MSG_NOSIGNAL);
    if (random() % 8 == 0) open.pop_back();
    std::this_thread::sleep_for(milliseconds(1));  // so that a flood leaves processor time to others
  }
}

// Strangers at a port of the library: silent ones, talking ones, and some that leave in the middle of a word. Connects
// again and again until its end, on a thread of its own.
class Strangers {
 public:
  Strangers(int listener, uint64_t seed);
  ~Strangers();
  Strangers(const Strangers&) = delete;
  Strangers& operator=(const Strangers&) = delete;

 private:
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

Strangers::Strangers(int listener, uint64_t seed)
    : thread_([this, address = AddressOf(listener), seed] { Flood(address, seed, ending_); }) {}

Strangers::~Strangers() {
  ending_.store(true);
  thread_.join();
}

// How long an NCCL call on a blocking communicator may exceed the deadline before the program aborts.
constexpr int64_t kPatienceMs = 500;

// From now on the process is on that host.
bool MoveToHost(int host) {
  const std::string name = "host" + std::to_string(host);
  const internal::FileDescriptor space(open(("/run/netns/" + name).c_str(), O_RDONLY | O_CLOEXEC));
  return space.valid() && setns(space.get(), CLONE_NEWNET) == 0 && unshare(CLONE_NEWUTS) == 0 &&
         sethostname(name.c_str(), name.size()) == 0;
}

// The program's own watchdog: on a blocking communicator a call ends only when somebody aborts it.
class Watchdog {
 public:
  Watchdog(Program& program, Control& control, milliseconds limit)
      : program_(program), control_(control), limit_(limit), thread_([this] { Watch(); }) {}
  ~Watchdog() {
    ending_.store(true);
    thread_.join();
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void Watch() {
    DeclareThread(Caller::kStranger);
    while (!ending_.load()) {
      std::this_thread::sleep_for(milliseconds(10));
      const int64_t began_ns = program_.call_began_ns();
      const bool late = began_ns != 0 && NowNanoseconds() - began_ns > std::chrono::nanoseconds(limit_).count();
      if (!late || !IsInsideNccl() || program_.communicators().aborted()) continue;
      control_.Send(AbortLine());
      program_.communicators().Abort();
    }
  }

  Program& program_;
  Control& control_;
  const milliseconds limit_;
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

// A healthy rank gets the fault; only rank 0 gives verdicts.
Plant PlantOf(const WorkerOptions& options, const Schedule& schedule) {
  const bool of_rank_0 = options.plant == Plant::kDroppedVerdict;
  int planted = of_rank_0 ? 0 : schedule.ranks - 1;
  while (!of_rank_0 && planted > 0 && schedule.IsVictim(planted)) --planted;
  return planted == options.rank && !schedule.IsVictim(planted) ? options.plant : Plant::kNone;
}

int RunProgram(const WorkerOptions& options, const Schedule& schedule, Control& control) {
  Result<internal::LoaderOptions> loader = internal::LoaderOptionsFromEnvironment(internal::DriverChoice::kEmulated);
  if (!loader.ok()) throw std::runtime_error(loader.status().message());
  loader->choice = internal::DriverChoice::kEmulated;
  Result<std::shared_ptr<const internal::Driver>> driver = internal::LoadDriver(*loader);
  if (!driver.ok()) throw std::runtime_error(driver.status().message());

  std::unique_ptr<Strangers> strangers;
  const milliseconds deadline(options.deadline_ms);
  ArmedFault armed({.at_point = [&](Point point) { control.Send(FaultLine(point)); },
                    .flood = [&](int listener) { strangers = std::make_unique<Strangers>(listener, options.seed); },
                    .late = 2 * deadline + milliseconds(kPatienceMs),
                    .delay = deadline / 3});
  const ProgramOptions own{
      .rank = options.rank, .deadline_ms = options.deadline_ms, .plant = PlantOf(options, schedule)};
  Program program(**driver, MakeFaultyDriver(*driver), schedule, own, control, armed);
  const Status started = program.Start();
  if (!started.ok()) throw std::runtime_error(started.message());
  {
    std::unique_ptr<Watchdog> watchdog;
    if (schedule.waiting == Waiting::kBlocking) {
      watchdog = std::make_unique<Watchdog>(program, control, deadline + milliseconds(kPatienceMs));
    }
    program.Run();
  }
  while (own.plant == Plant::kOutlive) pause();
  return kSuccess;
}

}  // namespace

int RunWorker(const WorkerOptions& options) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // the process ends with the command
  fcntl(options.control, F_SETFD, FD_CLOEXEC);
  DeclareThread(Caller::kProgram);
  Control control(options.control);
  if (options.host != 0 && !MoveToHost(options.host)) {
    throw std::runtime_error("there is no host" + std::to_string(options.host) + " among the network namespaces");
  }
  return RunProgram(options, MakeSchedule(options.seed, options.number, options.ranks), control);
}

}  // namespace commpool::cli::stress_ranks
