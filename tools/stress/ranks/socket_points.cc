#include "tools/stress/ranks/socket_points.h"

#include <sys/socket.h>
#include <sys/types.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>

#include "tools/stress/ranks/armed_fault.h"

using commpool::cli::stress_ranks::ArmedFault;
using commpool::cli::stress_ranks::Caller;
using commpool::cli::stress_ranks::CallerOfThread;
using commpool::cli::stress_ranks::Plant;
using commpool::cli::stress_ranks::Point;

extern "C" {
// The linker's names: the library's calls reach the first of each pair; the second is libc's function.
ssize_t WrappedSend(int socket, const void* data, size_t bytes, int flags) __asm__("__wrap_send");
ssize_t RealSend(int socket, const void* data, size_t bytes, int flags) __asm__("__real_send");
ssize_t WrappedReceive(int socket, void* data, size_t bytes, int flags) __asm__("__wrap_recv");
ssize_t RealReceive(int socket, void* data, size_t bytes, int flags) __asm__("__real_recv");
int WrappedConnect(int socket, const sockaddr* address, socklen_t bytes) __asm__("__wrap_connect");
int RealConnect(int socket, const sockaddr* address, socklen_t bytes) __asm__("__real_connect");
int WrappedAccept(int socket, sockaddr* address, socklen_t* bytes, int flags) __asm__("__wrap_accept4");
int RealAccept(int socket, sockaddr* address, socklen_t* bytes, int flags) __asm__("__real_accept4");
int WrappedListen(int socket, int backlog) __asm__("__wrap_listen");
int RealListen(int socket, int backlog) __asm__("__real_listen");
}

namespace {

std::atomic<Plant> planted{Plant::kNone};
std::atomic<int64_t> endless_ms{0};

// Sockets that this process connected. The peer is the rank that gathers, rank 0 of a home.
constexpr int kMostSockets = 1024;
std::array<std::atomic<bool>, kMostSockets> connected = {};
bool LeadsToFirst(int socket) { return socket >= 0 && socket < kMostSockets && connected[socket].load(); }
void NoteSocket(int socket, bool leads_to_first) {
  if (socket >= 0 && socket < kMostSockets) connected[socket].store(leads_to_first);
}

// What the program's thread has sent and heard in its call.
struct Turn {
  int sent_to = -1;  // the socket of its last message; -1 once it has heard something since
  bool heard = false;
};
thread_local Turn turn;

// Sends half of the message, so that the fault finds a peer that waits for the other half.
ssize_t SendHalf(ArmedFault& armed, Point point, int socket, const void* data, size_t bytes, int flags) {
  const ssize_t sent = RealSend(socket, data, std::max<size_t>(bytes / 2, 1), flags);
  armed.Act(point);
  return sent;
}

void ReachBeforeSending(ArmedFault& armed, int socket) {
  const bool answers = !LeadsToFirst(socket) && turn.heard;
  if (answers && turn.sent_to == -1) armed.Reach(Point::kVerdict);
  if (answers && turn.sent_to != -1 && turn.sent_to != socket) armed.Reach(Point::kHalfVerdict);
  turn.sent_to = socket;
}

}  // namespace

namespace commpool::cli::stress_ranks {

void PlantInSockets(Plant plant, std::chrono::milliseconds wait) {
  endless_ms.store(wait.count());
  planted.store(plant);
}

void BeginCallOnSockets() { turn = Turn(); }

}  // namespace commpool::cli::stress_ranks

ssize_t WrappedSend(int socket, const void* data, size_t bytes, int flags) {
  ArmedFault* const armed = ArmedFault::OfProcess();
  if (armed == nullptr || CallerOfThread() == Caller::kStranger) return RealSend(socket, data, bytes, flags);
  if (CallerOfThread() == Caller::kLibrary) {
    if (armed->Waits(Point::kPublish)) return SendHalf(*armed, Point::kPublish, socket, data, bytes, flags);
    return RealSend(socket, data, bytes, flags);
  }
  ReachBeforeSending(*armed, socket);
  if (armed->Waits(Point::kFrame)) return SendHalf(*armed, Point::kFrame, socket, data, bytes, flags);
  const Plant plant = planted.load(std::memory_order_relaxed);
  return plant == Plant::kDroppedVerdict ? static_cast<ssize_t>(bytes) : RealSend(socket, data, bytes, flags);
}

ssize_t WrappedReceive(int socket, void* data, size_t bytes, int flags) {
  ArmedFault* const armed = ArmedFault::OfProcess();
  if (armed == nullptr || CallerOfThread() != Caller::kProgram) return RealReceive(socket, data, bytes, flags);
  if (turn.sent_to == socket && LeadsToFirst(socket)) armed->Reach(Point::kVerdict);
  if (planted.load(std::memory_order_relaxed) == Plant::kEndlessWait) {
    std::this_thread::sleep_for(std::chrono::milliseconds(endless_ms.exchange(0)));
  }
  const ssize_t received = RealReceive(socket, data, bytes, flags);
  if (received > 0) turn = {.sent_to = -1, .heard = true};
  return received;
}

int WrappedConnect(int socket, const sockaddr* address, socklen_t bytes) {
  ArmedFault* const armed = ArmedFault::OfProcess();
  if (armed != nullptr && CallerOfThread() == Caller::kProgram) armed->Reach(Point::kConnect);
  NoteSocket(socket, true);
  return RealConnect(socket, address, bytes);
}

int WrappedAccept(int socket, sockaddr* address, socklen_t* bytes, int flags) {
  const int accepted = RealAccept(socket, address, bytes, flags);
  NoteSocket(accepted, false);
  return accepted;
}

int WrappedListen(int socket, int backlog) {
  ArmedFault* const armed = ArmedFault::OfProcess();
  const int result = RealListen(socket, backlog);
  if (armed == nullptr || CallerOfThread() != Caller::kProgram) return result;
  armed->Reach(Point::kConnect);
  if (!armed->Waits(Point::kPort)) return result;
  armed->Act(Point::kPort);
  armed->effects().flood(socket);
  return result;
}
