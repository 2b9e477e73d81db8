// Another process with the same device, which makes, shares and opens memory and events on request, and may be killed.
//
// It is the test program itself, started anew: `main` of peer_process.cc tells the two apart. Each request is answered,
// so no test sleeps.
#pragma once

#include <cuda.h>
#include <sys/types.h>

#include <cstdint>

#include "src/library/base/file_descriptor.h"

namespace commpool::internal::testing {

// The functions for sharing between processes, which the library itself does not use.
struct IpcFunctions {
  decltype(&cuIpcGetMemHandle) get_memory = nullptr;
  decltype(&cuIpcOpenMemHandle) open_memory = nullptr;
  decltype(&cuIpcCloseMemHandle) close_memory = nullptr;
  decltype(&cuIpcGetEventHandle) get_event = nullptr;
  decltype(&cuIpcOpenEventHandle) open_event = nullptr;
};
const IpcFunctions& Ipc();

// What a peer does. It has one piece of memory and one event at a time.
enum class Ask {
  kMakeShareable,  // `value` bytes of physical memory, mapped
  kExport,         // answers with a descriptor
  kImport,         // of a descriptor; maps it
  kUnmap,          // gives back what was made or imported
  kAllocate,       // `value` bytes of cuMemAlloc
  kFree,
  kGetMemory,   // answers with the handle of the byte at `value`
  kOpenMemory,  // answers with the address
  kCloseMemory,
  kFill,  // the first 4096 bytes, with `value`
  kRead,  // answers with the first byte
  kMakeEvent,
  kGetEvent,
  kOpenEvent,
  kRecord,      // after what was submitted
  kBlock,       // submits work that runs until kUnblock
  kUnblock,     // and waits for all work
  kQueryEvent,  // answers with what cuEventQuery says
  kDestroyEvent,
  kFreeBytes,  // answers with the device's free memory
};

struct Request {
  Ask ask = Ask::kFreeBytes;
  uint64_t value = 0;
  unsigned char handle[64] = {};
};

struct Answer {
  CUresult result = CUDA_SUCCESS;
  uint64_t value = 0;
  unsigned char handle[64] = {};

  template <typename IpcHandle>
  IpcHandle As() const {
    static_assert(sizeof(IpcHandle) == sizeof(handle));
    IpcHandle typed;
    __builtin_memcpy(&typed, handle, sizeof(handle));
    return typed;
  }
};

class PeerProcess {
 public:
  PeerProcess();
  ~PeerProcess() { End(); }
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  // Fails the test if the peer is gone.
  Answer Do(Ask ask, uint64_t value = 0);
  Answer Do(Ask ask, const void* handle);
  Answer Import(int descriptor);
  FileDescriptor Export();

  // Ends it in order, or by SIGKILL; returns once it is gone.
  void End();
  void Kill();

 private:
  Answer Exchange(const Request& request, int descriptor, FileDescriptor* received);

  pid_t process_ = -1;
  FileDescriptor socket_;
};

}  // namespace commpool::internal::testing
