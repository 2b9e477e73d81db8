#include "src/library/registration/registered_range.h"

#include <cstdlib>
#include <memory>

#include "src/library/base/failure.h"
#include "src/library/driver/diagnosis.h"
#include "src/library/driver/handles.h"

namespace commpool::internal {

namespace {

// Whether NCCL may still continue the registration that failed for its caller so.
bool MayGoOn(const Status& status) {
  return status.code() == StatusCode::kDeadlineExceeded || status.code() == StatusCode::kRemoteFailure;
}

// For host memory NCCL 2.30 returns success and writes no handle. The handle then stays null.
ncclResult_t CallNccl(const NcclLibrary& nccl, ncclComm_t communicator, RegisteredRange& range) {
  void* const memory = reinterpret_cast<void*>(range.address);
  if (range.kind == RegistrationKind::kLocal) {
    return nccl.ncclCommRegister(communicator, memory, range.bytes, &range.local_handle);
  }
  return nccl.ncclCommWindowRegister(communicator, memory, range.bytes, &range.window, NCCL_WIN_COLL_SYMMETRIC);
}

Status Register(const Driver& driver, const Communicator& communicator, uint64_t deadline_ms, RegisteredRange& range) {
  const NcclLibrary& nccl = driver.nccl;
  const bool window = range.kind == RegistrationKind::kWindow;
  if (window ? !nccl.has_windows() : !nccl.has_local_registration()) {
    return NotSupported(window ? nccl.WhyNoWindows() : nccl.WhyNoLocalRegistration());
  }
  const char* const call = window ? "ncclCommWindowRegister" : "ncclCommRegister";
  Status status = AwaitCommunicator(driver, communicator, CallNccl(nccl, communicator.handle, range), call, range.bytes,
                                    deadline_ms);
  if (!status.ok() || range.registered()) return status;
  return NotSupported("NCCL ", FormatNcclVersion(nccl.version), " accepted ", call,
                      window ? " and made no window: not every GPU of the communicator reaches the others (NVLink or "
                               "PCIe peer access), or NCCL_WIN_ENABLE=0 or NCCL_CUMEM_ENABLE=0"
                             : " and registered nothing: host memory, or NCCL_LOCAL_REGISTER=0");
}

// For a call that needs no other rank: it must not fail because one is lost.
Communicator Alone(const Communicator& communicator) {
  return {.handle = communicator.handle, .device = communicator.device};
}

// As NCCL reads it: by its number, and by the default where it is empty.
bool IsZero(const char* variable) {
  const char* const text = std::getenv(variable);
  if (text == nullptr) return false;
  char* end = nullptr;
  return std::strtoll(text, &end, 0) == 0 && end != text;
}

}  // namespace

Result<RegisteredRange> RegisterRange(const Driver& driver, const Communicator& communicator, RegistrationKind kind,
                                      CUdeviceptr address, uint64_t bytes, uint64_t deadline_ms,
                                      UnfinishedRange& unfinished) {
  ContextGuard keep_current(driver);
  NoteOldErrorText(driver);
  // This allocation must not fail: the other ranks are on their way into NCCL's call, and would wait there.
  auto range = std::make_unique<RegisteredRange>(RegisteredRange{.kind = kind, .address = address, .bytes = bytes});
  const Status status = Register(driver, communicator, deadline_ms, *range);
  if (status.ok()) return *range;
  if (MayGoOn(status)) unfinished = range.release();
  return status;
}

Status EndUnfinished(const Driver& driver, const Communicator& communicator, const RegisteredRange& range,
                     uint64_t deadline_ms) {
  const Status finished = AwaitCommunicator(driver, Alone(communicator), ncclInProgress,
                                            "a registration that was given up", range.bytes, deadline_ms);
  if (finished.code() == StatusCode::kDeadlineExceeded) return finished;
  return range.registered() ? DeregisterRange(driver, communicator, range, deadline_ms) : Status();
}

Status DeregisterRange(const Driver& driver, const Communicator& communicator, const RegisteredRange& range,
                       uint64_t deadline_ms) {
  ContextGuard keep_current(driver);
  NoteOldErrorText(driver);
  const bool window = range.kind == RegistrationKind::kWindow;
  const ncclResult_t result = window ? driver.nccl.ncclCommWindowDeregister(communicator.handle, range.window)
                                     : driver.nccl.ncclCommDeregister(communicator.handle, range.local_handle);
  const Status finished =
      AwaitCommunicator(driver, Alone(communicator), result, window ? "ncclCommWindowDeregister" : "ncclCommDeregister",
                        range.bytes, deadline_ms);
  return result == ncclSuccess && finished.code() != StatusCode::kDeadlineExceeded ? Status() : finished;
}

Status CheckNcclRegistersNothingUnseen() {
  for (const char* const variable : {"NCCL_LOCAL_REGISTER", "NCCL_GRAPH_REGISTER"}) {
    if (IsZero(variable)) continue;
    return FailedPrecondition(
        variable,
        " is not 0, so graphs that captured collectives may name memory that NCCL registered by itself. Without "
        "such graphs: graphs = NO_COLLECTIVES; with them set NCCL_LOCAL_REGISTER=0 and NCCL_GRAPH_REGISTER=0 "
        "on all ranks, before NCCL is used");
  }
  return Status();
}

}  // namespace commpool::internal
