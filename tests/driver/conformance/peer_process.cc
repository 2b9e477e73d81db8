#include "tests/driver/conformance/peer_process.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <future>
#include <optional>
#include <string>
#include <utility>

#include "tests/driver/conformance/conformance_fixture.h"

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
Function Find(const char* name) {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);  // the tests' driver is open already
  void* const function = library == nullptr ? nullptr : dlsym(library, name);
  if (function == nullptr) {
    std::fprintf(stderr, "the driver has no %s\n", name);
    std::exit(1);
  }
  return reinterpret_cast<Function>(function);
}

constexpr uint64_t kFilled = 4096;
constexpr CUmemLocation kDevice = DeviceLocation(0);

// What a peer does on request. It has device 0, one piece of memory and one event.
class PeerWork {
 public:
  CUresult Do(const Request& request, const FileDescriptor& received, Answer* answer, FileDescriptor* exported) {
    CUresult result = CUDA_SUCCESS;
    switch (request.ask) {
      case Ask::kMakeShareable:
        return Keep(MappedMemory(driver_, kDevice, request.value, 0));
      case Ask::kExport:
        *exported = memory_->physical().Export().value();
        return CUDA_SUCCESS;
      case Ask::kImport:  // tests share pieces of one granularity
        return Keep({PhysicalMemory::Import(driver_, received, GranularityAt(driver_, kDevice)).value(), 0});
      case Ask::kUnmap:
        memory_->Release().or_throw();
        return CUDA_SUCCESS;
      case Ask::kAllocate:
        return cuda_.cuMemAlloc(&address_, request.value);
      case Ask::kFree:
        return cuda_.cuMemFree(address_);
      case Ask::kGetMemory:
        return Ipc().get_memory(&answer->handle.memory, address_ + request.value);
      case Ask::kOpenMemory:
        return Ipc().open_memory(&address_, request.handle.memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
      case Ask::kCloseMemory:
        return Ipc().close_memory(address_);
      case Ask::kFill:
        result = cuda_.cuMemsetD8Async(address_, static_cast<unsigned char>(request.value), kFilled, nullptr);
        return result == CUDA_SUCCESS ? cuda_.cuCtxSynchronize() : result;
      case Ask::kRead:
        return cuda_.cuMemcpyDtoH(&answer->value, address_, 1);
      case Ask::kMakeEvent:
        return cuda_.cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS);
      case Ask::kGetEvent:
        return Ipc().get_event(&answer->handle.event, event_);
      case Ask::kOpenEvent:
        return Ipc().open_event(&event_, request.handle.event);
      case Ask::kRecordBehindABlock:
        result = cuda_.cuLaunchHostFunc(
            nullptr, [](void* block) { static_cast<std::promise<void>*>(block)->get_future().wait(); }, &block_);
        return result == CUDA_SUCCESS ? cuda_.cuEventRecord(event_, nullptr) : result;
      case Ask::kUnblock:
        block_.set_value();
        return cuda_.cuCtxSynchronize();
      case Ask::kQueryEvent:
        return cuda_.cuEventQuery(event_);
      case Ask::kDestroyEvent:
        return cuda_.cuEventDestroy(event_);
    }
    return CUDA_ERROR_INVALID_VALUE;
  }

 private:
  CUresult Keep(MappedMemory memory) {
    memory_ = std::move(memory);
    address_ = memory_->address();
    return CUDA_SUCCESS;
  }

  const Driver& driver_ = *SharedDriver();
  const CudaDriver& cuda_ = driver_.cuda;
  const PrimaryContext context_ = PrimaryContext::Retain(driver_, 0).value();
  const ContextGuard current_{driver_, context_};
  std::optional<MappedMemory> memory_;
  CUdeviceptr address_ = 0;
  CUevent event_ = nullptr;
  std::promise<void> block_;
};

[[noreturn]] void Serve(int socket) {
  PeerWork work;
  Request request;
  for (FileDescriptor received; Receive(socket, &request, &received); received = FileDescriptor()) {
    FileDescriptor exported;
    Answer answer;
    answer.result = work.Do(request, received, &answer, &exported);
    if (!Send(socket, answer, exported.get())) break;
  }
  _exit(0);
}

}  // namespace

const IpcFunctions& Ipc() {
  static const IpcFunctions functions = {Find<decltype(&cuIpcGetMemHandle)>("cuIpcGetMemHandle"),
                                         Find<decltype(&cuIpcOpenMemHandle)>("cuIpcOpenMemHandle_v2"),
                                         Find<decltype(&cuIpcCloseMemHandle)>("cuIpcCloseMemHandle"),
                                         Find<decltype(&cuIpcGetEventHandle)>("cuIpcGetEventHandle"),
                                         Find<decltype(&cuIpcOpenEventHandle)>("cuIpcOpenEventHandle")};
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

Answer PeerProcess::Do(const Request& request, int sent, FileDescriptor* received) {
  Answer answer;
  FileDescriptor none;
  const bool was_sent = Send(socket_.get(), request, sent);
  if (was_sent && Receive(socket_.get(), &answer, received == nullptr ? &none : received)) return answer;
  ADD_FAILURE() << "the other process is gone";
  return {.result = CUDA_ERROR_UNKNOWN};
}

Answer PeerProcess::Must(const Request& request, int sent, FileDescriptor* received) {
  const Answer answer = Do(request, sent, received);
  EXPECT_EQ(answer.result, CUDA_SUCCESS) << "of the other process, asked for " << static_cast<int>(request.ask);
  return answer;
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
