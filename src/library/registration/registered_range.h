// One registration: a segment with a communicator, as a local buffer or as a window, and NCCL's handle for it.
//
// To make or end one calls NCCL. So only callers that may call NCCL do it (rule 1), and no destructor does. The
// functions poll a nonblocking communicator until it has finished. Each puts the thread's current device back, because
// NCCL 2.28 to 2.30 do not always do so.
#pragma once

#include <cuda.h>
#include <nccl.h>

#include <cstdint>

#include "commpool/status.h"
#include "src/library/driver/loader.h"
#include "src/library/registration/communicator.h"

namespace commpool::internal {

enum class RegistrationKind {
  kLocal,   // ncclCommRegister: this rank alone
  kWindow,  // ncclCommWindowRegister, symmetric: every rank of the communicator, in the same order, of the same size
};

// A segment as registration sees it: its number in the pool, the same on every rank of a symmetric pool.
struct SegmentToRegister {
  uint32_t index = 0;
  CUdeviceptr address = 0;
  uint64_t bytes = 0;
};

// A registration that exists, or one on its way. RegistrationSet keeps those of a pool.
struct RegisteredRange {
  RegistrationKind kind = RegistrationKind::kLocal;
  CUdeviceptr address = 0;
  uint64_t bytes = 0;
  void* local_handle = nullptr;
  ncclWindow_t window = nullptr;

  bool operator==(const RegisteredRange&) const = default;
  bool registered() const { return local_handle != nullptr || window != nullptr; }
};

// A registration that its caller gave up while a nonblocking communicator continues it. NCCL writes the handle into the
// struct when it has finished, at any time, so nobody ever frees the struct.
using UnfinishedRange = const RegisteredRange*;

// `unfinished` becomes the registration where its caller gives it up so. kNotSupported, with the reason, where NCCL is
// too old or takes the call and registers nothing (a null window).
Result<RegisteredRange> RegisterRange(const Driver& driver, const Communicator& communicator, RegistrationKind kind,
                                      CUdeviceptr address, uint64_t bytes, uint64_t deadline_ms,
                                      UnfinishedRange& unfinished);

// Ends a registration that was given up. Waits until NCCL has finished it, at most until the deadline
// (kDeadlineExceeded), and for no other rank.
Status EndUnfinished(const Driver& driver, const Communicator& communicator, const RegisteredRange& range,
                     uint64_t deadline_ms);

Status DeregisterRange(const Driver& driver, const Communicator& communicator, const RegisteredRange& range,
                       uint64_t deadline_ms);

// kFailedPrecondition unless NCCL_LOCAL_REGISTER and NCCL_GRAPH_REGISTER are 0 in this process. Both are 1 by default:
// NCCL then registers the memory of each window, and the buffers of captured collectives, for itself, and graphs use
// these registrations (2.28.9 and 2.30.7, src/register). NCCL reads each once, so they are set before it is used. It
// writes what its configuration files say into the environment too.
Status CheckNcclRegistersNothingUnseen();

}  // namespace commpool::internal
