#include "src/registration/registered_range.h"

#include <memory>
#include <utility>

#include "src/base/host_patience.h"
#include "src/driver/diagnosis.h"
#include "src/driver/handles.h"

namespace commpool::internal {

namespace {

// Whether NCCL may go on with what its caller gave up.
bool MayGoOn(const Status& status) {
  return status.code() == StatusCode::kDeadlineExceeded || status.code() == StatusCode::kRemoteFailure;
}

Status RegisterLocal(const Driver& driver, const Communicator& communicator, uint64_t deadline_ms,
                     RegisteredRange& range) {
  if (!driver.nccl.has_local_registration()) {
    return Status(StatusCode::kNotSupported, driver.nccl.WhyNoLocalRegistration());
  }
  // NCCL 2.30 returns success without writing the handle for host memory: what is not written stays null.
  const ncclResult_t result = driver.nccl.ncclCommRegister(communicator.handle, reinterpret_cast<void*>(range.address),
                                                           range.bytes, &range.local_handle);
  Status status = AwaitCommunicator(driver, communicator, result, "ncclCommRegister", range.bytes, deadline_ms);
  if (!status.ok() || range.local_handle != nullptr) return status;
  return Status(StatusCode::kNotSupported,
                "NCCL " + FormatNcclVersion(driver.nccl.version) +
                    " accepted ncclCommRegister and registered nothing: host memory, or NCCL_LOCAL_REGISTER=0");
}

Status RegisterWindow(const Driver& driver, const Communicator& communicator, uint64_t deadline_ms,
                      RegisteredRange& range) {
  if (!driver.nccl.has_windows()) {
    return Status(StatusCode::kNotSupported, driver.nccl.WhyNoWindows());
  }
  const ncclResult_t result = driver.nccl.ncclCommWindowRegister(
      communicator.handle, reinterpret_cast<void*>(range.address), range.bytes, &range.window, NCCL_WIN_COLL_SYMMETRIC);
  Status status = AwaitCommunicator(driver, communicator, result, "ncclCommWindowRegister", range.bytes, deadline_ms);
  if (!status.ok() || range.window != nullptr) return status;
  return Status(StatusCode::kNotSupported,
                "NCCL " + FormatNcclVersion(driver.nccl.version) +
                    " accepted ncclCommWindowRegister and made no window: not every GPU of the communicator reaches "
                    "the others (NVLink or PCIe peer access), or NCCL_WIN_ENABLE=0 or NCCL_CUMEM_ENABLE=0");
}

}  // namespace

Result<RegisteredRange> RegisterRange(const Driver& driver, const Communicator& communicator, RegistrationKind kind,
                                      CUdeviceptr address, uint64_t bytes, uint64_t deadline_ms,
                                      UnfinishedRange* unfinished) {
  ContextGuard keep_current(driver);
  HearLastWords(driver);
  // The other ranks are on their way into NCCL's call.
  auto range = Insist([&] {
    return std::make_unique<RegisteredRange>(RegisteredRange{.kind = kind, .address = address, .bytes = bytes});
  });
  const auto act = kind == RegistrationKind::kWindow ? RegisterWindow : RegisterLocal;
  const Status status = act(driver, communicator, deadline_ms, *range);
  if (status.ok()) return *range;
  if (MayGoOn(status)) {
    UnfinishedRange left(range.release());
    if (unfinished != nullptr) *unfinished = std::move(left);
  }
  return status;
}

Status EndUnfinished(const Driver& driver, const Communicator& communicator, const RegisteredRange& range,
                     uint64_t deadline_ms) {
  Communicator local = communicator;
  local.lost = nullptr;
  const Status finished =
      AwaitCommunicator(driver, local, ncclInProgress, "a registration that was given up", range.bytes, deadline_ms);
  if (finished.code() == StatusCode::kDeadlineExceeded) return finished;
  const bool registered = range.window != nullptr || range.local_handle != nullptr;
  return registered ? DeregisterRange(driver, communicator, range, deadline_ms) : Status();
}

Status DeregisterRange(const Driver& driver, const Communicator& communicator, const RegisteredRange& range,
                       uint64_t deadline_ms) {
  ContextGuard keep_current(driver);
  HearLastWords(driver);
  const bool window = range.kind == RegistrationKind::kWindow;
  const ncclResult_t result = window ? driver.nccl.ncclCommWindowDeregister(communicator.handle, range.window)
                                     : driver.nccl.ncclCommDeregister(communicator.handle, range.local_handle);
  // The call asks no other rank: neither a lost one, nor what that has done to the communicator, makes it fail.
  Communicator local = communicator;
  local.lost = nullptr;
  const Status finished = AwaitCommunicator(
      driver, local, result, window ? "ncclCommWindowDeregister" : "ncclCommDeregister", range.bytes, deadline_ms);
  return result == ncclSuccess && finished.code() != StatusCode::kDeadlineExceeded ? Status() : finished;
}

}  // namespace commpool::internal
