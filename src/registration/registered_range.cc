#include "src/registration/registered_range.h"

#include "src/driver/diagnosis.h"
#include "src/driver/handles.h"

namespace commpool {

namespace {

Result<RegisteredRange> RegisterLocal(const Driver& driver, const Communicator& communicator, RegisteredRange range,
                                      uint64_t deadline_ms) {
  if (!driver.nccl.has_local_registration()) {
    return Status(StatusCode::kNotSupported, driver.nccl.WhyNoLocalRegistration());
  }
  // NCCL 2.30 returns success without writing the handle for host memory: what is not written stays null.
  const ncclResult_t result = driver.nccl.ncclCommRegister(communicator.handle, reinterpret_cast<void*>(range.address),
                                                           range.bytes, &range.local_handle);
  Status status = AwaitCommunicator(driver, communicator, result, "ncclCommRegister", range.bytes, deadline_ms);
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
  const ncclResult_t result = driver.nccl.ncclCommWindowRegister(
      communicator.handle, reinterpret_cast<void*>(range.address), range.bytes, &range.window, NCCL_WIN_COLL_SYMMETRIC);
  Status status = AwaitCommunicator(driver, communicator, result, "ncclCommWindowRegister", range.bytes, deadline_ms);
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
  const RegisteredRange range{.kind = kind, .address = address, .bytes = bytes};
  return kind == RegistrationKind::kWindow ? RegisterWindow(driver, communicator, range, deadline_ms)
                                           : RegisterLocal(driver, communicator, range, deadline_ms);
}

Status DeregisterRange(const Driver& driver, const Communicator& communicator, const RegisteredRange& range) {
  ContextGuard keep_current(driver);
  if (range.kind == RegistrationKind::kWindow) {
    return CheckNccl(driver, driver.nccl.ncclCommWindowDeregister(communicator.handle, range.window),
                     {.call = "ncclCommWindowDeregister", .device = communicator.device, .bytes = range.bytes},
                     communicator.handle);
  }
  return CheckNccl(driver, driver.nccl.ncclCommDeregister(communicator.handle, range.local_handle),
                   {.call = "ncclCommDeregister", .device = communicator.device, .bytes = range.bytes},
                   communicator.handle);
}

}  // namespace commpool
