// What a peer process does on request. It has device 0, one piece of memory and one event.
#pragma once

#include <cuda.h>

#include <future>

#include "src/library/driver/handles.h"
#include "tests/driver/conformance/peer_process.h"

namespace commpool::internal::testing {

class PeerWork {
 public:
  PeerWork();
  // `descriptor` came with the request, or is -1; `exported` goes with the answer, which closes it.
  Answer Do(const Request& request, int descriptor, int* exported);

 private:
  CUresult MapHandle();
  CUresult Unmap();
  CUresult Make(uint64_t bytes);
  CUresult Import(int descriptor);
  CUresult DoWithMemory(const Request& request, int descriptor, Answer* answer, int* exported);
  CUresult DoWithEvent(const Request& request, Answer* answer);

  const Driver& driver_;
  const CudaDriver& cuda_;
  PrimaryContext context_;
  ContextGuard current_;
  CUmemGenericAllocationHandle handle_ = 0;
  CUdeviceptr address_ = 0;
  CUevent event_ = nullptr;
  std::promise<void> unblocked_;
};

}  // namespace commpool::internal::testing
