#include "tests/driver/conformance/peer_process.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/driver/conformance/peer_work.h"

namespace commpool::internal::testing {

namespace {

constexpr const char* kPeer = "--peer";

template <typename Message>
bool Send(int socket, const Message& message, int descriptor) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  iovec part{const_cast<Message*>(&message), sizeof(message)};
  msghdr header = {};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (descriptor >= 0) {
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &descriptor, sizeof(int));
  }
  return sendmsg(socket, &header, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof(message));
}

template <typename Message>
bool Receive(int socket, Message* message, FileDescriptor* received) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  iovec part{message, sizeof(*message)};
  msghdr header = {};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof(control);
  if (recvmsg(socket, &header, MSG_CMSG_CLOEXEC) != static_cast<ssize_t>(sizeof(*message))) return false;
  if (const cmsghdr* const rights = CMSG_FIRSTHDR(&header)) {
    int descriptor = -1;
    std::memcpy(&descriptor, CMSG_DATA(rights), sizeof(int));
    *received = FileDescriptor(descriptor);
  }
  return true;
}

template <typename Function>
void Find(Function* function, const char* name) {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);  // the tests' driver is open already
  *function = library == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(library, name));
  if (*function == nullptr) {
    std::fprintf(stderr, "the driver has no %s\n", name);
    std::exit(1);
  }
}

[[noreturn]] void Serve(int socket) {
  PeerWork work;
  Request request;
  FileDescriptor received;
  while (Receive(socket, &request, &received)) {
    int descriptor = -1;
    const Answer answer = work.Do(request, received.valid() ? received.get() : -1, &descriptor);
    received = FileDescriptor();
    if (!Send(socket, answer, descriptor)) break;
    if (descriptor >= 0) close(descriptor);
  }
  _exit(0);
}

}  // namespace

const IpcFunctions& Ipc() {
  static const IpcFunctions functions = [] {
    IpcFunctions found;
    Find(&found.get_memory, "cuIpcGetMemHandle");
    Find(&found.open_memory, "cuIpcOpenMemHandle_v2");
    Find(&found.close_memory, "cuIpcCloseMemHandle");
    Find(&found.get_event, "cuIpcGetEventHandle");
    Find(&found.open_event, "cuIpcOpenEventHandle");
    return found;
  }();
  return functions;
}

PeerProcess::PeerProcess() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
  process_ = fork();
  if (process_ == 0) {
    dup2(ends[1], STDIN_FILENO);  // the only descriptor that survives exec besides output
    execl("/proc/self/exe", "peer", kPeer, nullptr);
    _exit(127);
  }
  socket_ = FileDescriptor(ends[0]);
  close(ends[1]);
}

Answer PeerProcess::Exchange(const Request& request, int descriptor, FileDescriptor* received) {
  Answer answer;
  if (Send(socket_.get(), request, descriptor) && Receive(socket_.get(), &answer, received)) return answer;
  ADD_FAILURE() << "the other process is gone";
  return {CUDA_ERROR_UNKNOWN, 0, {}};
}

Answer PeerProcess::Do(Ask ask, uint64_t value) {
  FileDescriptor none;
  return Exchange({ask, value, {}}, -1, &none);
}

Answer PeerProcess::Do(Ask ask, const void* handle) {
  FileDescriptor none;
  Request request{ask, 0, {}};
  std::memcpy(request.handle, handle, sizeof(request.handle));
  return Exchange(request, -1, &none);
}

Answer PeerProcess::Import(int descriptor) {
  FileDescriptor none;
  return Exchange({Ask::kImport, 0, {}}, descriptor, &none);
}

FileDescriptor PeerProcess::Export() {
  FileDescriptor exported;
  EXPECT_EQ(Exchange({Ask::kExport, 0, {}}, -1, &exported).result, CUDA_SUCCESS);
  return exported;
}

void PeerProcess::End() {
  if (process_ < 0) return;
  socket_ = FileDescriptor();
  int status = 0;
  EXPECT_EQ(waitpid(std::exchange(process_, -1), &status, 0) > 0 && WIFEXITED(status), true);
}

void PeerProcess::Kill() {
  kill(process_, SIGKILL);
  waitpid(std::exchange(process_, -1), nullptr, 0);
}

}  // namespace commpool::internal::testing

int main(int argc, char** argv) {
  using namespace commpool::internal::testing;
  if (argc == 2 && std::string(argv[1]) == kPeer) Serve(STDIN_FILENO);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
