#include "src/registration/registered_range.h"

#include <memory>
#include <utility>

#include "src/driver/diagnosis.h"
#include "src/driver/handles.h"

namespace commpool::internal {

namespace {

// A nonblocking communicator writes the handle when it has finished: where nobody waited for that the place stays its
// own.
template <typename Handle>
void LeaveIfUnfinished(const Status& status, std::unique_ptr<Handle> place, Handle* handle) {
  if (status.code() == StatusCode::kDeadlineExceeded || status.code() == StatusCode::kRemoteFailure) {
    static_cast<void>(place.release());
  } else {
    *handle = *place;
  }
}

Result<RegisteredRange> RegisterLocal(const Driver& driver, const Communicator& communicator, RegisteredRange range,
                                      uint64_t deadline_ms) {
  if (!driver.nccl.has_local_registration()) {
    return Status(StatusCode::kNotSupported, driver.nccl.WhyNoLocalRegistration());
  }
  // NCCL 2.30 returns success without writing the handle for host memory: what is not written stays null.
  auto handle = std::make_unique<void*>(nullptr);
  const ncclResult_t result = driver.nccl.ncclCommRegister(communicator.handle, reinterpret_cast<void*>(range.address),
                                                           range.bytes, handle.get());
  Status status = AwaitCommunicator(driver, communicator, result, "ncclCommRegister", range.bytes, deadline_ms);
  LeaveIfUnfinished(status, std::move(handle), &range.local_handle);
  if (!status.ok()) return status;
  if (range.local_handle == nullptr) {
    return Status(StatusCode::kNotSupported,
                  "NCCL " + FormatNcclVersion(driver.nccl.version) +
                      " accepted ncclCommRegister and registered nothing: host memory, or NCCL_LOCAL_REGISTER=0");
  }
  return range;
}

Result<RegisteredRange> RegisterWindow(const Driver& driver, const Communicator& communicator, RegisteredRange range,
                                       uint64_t deadline_ms) {
  if (!driver.nccl.has_windows()) {
    return Status(StatusCode::kNotSupported, driver.nccl.WhyNoWindows());
  }
  auto window = std::make_unique<ncclWindow_t>(nullptr);
  const ncclResult_t result = driver.nccl.ncclCommWindowRegister(
      communicator.handle, reinterpret_cast<void*>(range.address), range.bytes, window.get(), NCCL_WIN_COLL_SYMMETRIC);
  Status status = AwaitCommunicator(driver, communicator, result, "ncclCommWindowRegister", range.bytes, deadline_ms);
  LeaveIfUnfinished(status, std::move(window), &range.window);
  if (!status.ok()) return status;
  if (range.window == nullptr) {
    return Status(StatusCode::kNotSupported,
                  "NCCL " + FormatNcclVersion(driver.nccl.version) +
                      " accepted ncclCommWindowRegister and made no window: not every GPU of the communicator reaches "
                      "the others (NVLink or PCIe peer access), or NCCL_WIN_ENABLE=0 or NCCL_CUMEM_ENABLE=0");
  }
  return range;
}

}  // namespace

Result<RegisteredRange> RegisterRange(const Driver& driver, const Communicator& communicator, RegistrationKind kind,
                                      CUdeviceptr address, uint64_t bytes, uint64_t deadline_ms) {
  ContextGuard keep_current(driver);
  HearLastWords(driver);
  const RegisteredRange range{.kind = kind, .address = address, .bytes = bytes};
  return kind == RegistrationKind::kWindow ? RegisterWindow(driver, communicator, range, deadline_ms)
                                           : RegisterLocal(driver, communicator, range, deadline_ms);
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
