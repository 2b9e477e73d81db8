#include "tools/stress/ranks/strangers.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <random>
#include <vector>

#include "src/base/file_descriptor.h"
#include "tools/stress/ranks/armed_fault.h"

namespace commpool::cli::stress_ranks {

namespace {

constexpr size_t kMostAtOnce = 48;
constexpr int kPatienceMs = 20;  // to connect, before a stranger says its words

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
    if (bytes > 0 && poll(&connected, 1, kPatienceMs) > 0) send(connected.fd, noise.data(), bytes, MSG_NOSIGNAL);
    if (random() % 8 == 0) open.pop_back();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // so that a flood leaves processor time to others
  }
}

}  // namespace

Strangers::Strangers(int listener, uint64_t seed)
    : thread_([this, address = AddressOf(listener), seed] { Flood(address, seed, ending_); }) {}

Strangers::~Strangers() {
  ending_.store(true);
  thread_.join();
}

}  // namespace commpool::cli::stress_ranks
