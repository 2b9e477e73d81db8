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
  kGetMemory,  // answers with the handle of the byte at `value`
  kOpenMemory,
  kCloseMemory,
  kFill,  // the first 4096 bytes, with `value`
  kRead,  // answers with the first byte
  kMakeEvent,
  kGetEvent,
  kOpenEvent,
  kRecordBehindABlock,  // after work that runs until kUnblock, once
  kUnblock,             // and waits for all work
  kQueryEvent,          // answers with what cuEventQuery says
  kDestroyEvent,
};

// Of memory or of an event.
union IpcHandle {
  CUipcMemHandle memory;
  CUipcEventHandle event;
};

struct Request {
  Ask ask = Ask::kRead;
  uint64_t value = 0;
  IpcHandle handle = {};
};

struct Answer {
  CUresult result = CUDA_SUCCESS;
  uint64_t value = 0;
  IpcHandle handle = {};
};

class PeerProcess {
 public:
  PeerProcess();
  ~PeerProcess() { End(); }
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  // Fails the test if the peer is gone. `sent` goes with the request, `received` comes with the answer.
  Answer Do(const Request& request, int sent = -1, FileDescriptor* received = nullptr);
  // It must succeed.
  Answer Must(const Request& request, int sent = -1, FileDescriptor* received = nullptr);

  // Ends it in order, or by SIGKILL; returns once it is gone.
  void End();
  void Kill();

 private:
  pid_t process_ = -1;
  FileDescriptor socket_;
};

}  // namespace commpool::internal::testing
