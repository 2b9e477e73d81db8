// One registration: a segment with a communicator, as a local buffer or as a window, and NCCL's handle for it.
//
// Making and ending one calls NCCL, so only callers that may do so make or end it (rule 1), and no destructor does. The
// functions poll a nonblocking communicator until it has finished. Each keeps the thread's current device: NCCL 2.28 to
// 2.30 do not always put it back.
#ifndef COMMPOOL_SRC_REGISTRATION_REGISTERED_RANGE_H_
#define COMMPOOL_SRC_REGISTRATION_REGISTERED_RANGE_H_

#include <cuda.h>
#include <nccl.h>

#include <cstdint>
#include <memory>

#include "commpool/status.h"
#include "src/driver/loader.h"
#include "src/registration/communicator.h"

namespace commpool::internal {

enum class RegistrationKind {
  kLocal,   // ncclCommRegister: this rank alone
  kWindow,  // ncclCommWindowRegister, symmetric: every rank of the communicator, in the same order, of the same size
};

struct RegisteredRange {
  RegistrationKind kind = RegistrationKind::kLocal;
  CUdeviceptr address = 0;
  uint64_t bytes = 0;
  void* local_handle = nullptr;
  ncclWindow_t window = nullptr;

  bool registered() const { return local_handle != nullptr || window != nullptr; }
};

// A registration that its caller gave up while a nonblocking communicator goes on with it. NCCL writes the handle when
// it has finished, so that place is NCCL's for ever.
struct LeaveToNccl {
  void operator()(RegisteredRange*) const {}
};
using UnfinishedRange = std::unique_ptr<RegisteredRange, LeaveToNccl>;

// kNotSupported, with the reason, where NCCL is too old or takes the call and registers nothing (a null window).
// `unfinished` may be null.
Result<RegisteredRange> RegisterRange(const Driver& driver, const Communicator& communicator, RegistrationKind kind,
                                      CUdeviceptr address, uint64_t bytes, uint64_t deadline_ms,
                                      UnfinishedRange* unfinished = nullptr);

// Ends a registration that was given up. It has until the deadline to finish: kDeadlineExceeded where it has not. Waits
// for no other rank beyond that.
Status EndUnfinished(const Driver& driver, const Communicator& communicator, const RegisteredRange& range,
                     uint64_t deadline_ms);

Status DeregisterRange(const Driver& driver, const Communicator& communicator, const RegisteredRange& range,
                       uint64_t deadline_ms);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_REGISTRATION_REGISTERED_RANGE_H_
