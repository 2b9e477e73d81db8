#include "examples/support/driver.h"

#include <memory>

#include "commpool/commpool.h"
#include "commpool/status.h"
#include "src/driver/diagnosis.h"

namespace examples {

namespace {

using internal::DriverChoice;

std::shared_ptr<const internal::Driver> Open(internal::DriverChoice choice) {
  internal::LoaderOptions options = internal::LoaderOptionsFromEnvironment(choice).value();
  if (choice != internal::DriverChoice::kAuto) options.choice = choice;
  std::shared_ptr<const internal::Driver> driver = internal::LoadDriver(options).value();

  const bool emulated = driver->kind == internal::DriverChoice::kEmulated;
  commpool::detail::FromC(commpool_initialize(emulated ? COMMPOOL_DRIVER_EMULATED : COMMPOOL_DRIVER_CUDA)).or_throw();
  if (commpool_driver_description() != driver->description) {
    throw commpool::Error(commpool::Status(commpool::StatusCode::kFailedPrecondition,
                                           "commpool runs on " + std::string(commpool_driver_description()) +
                                               ", the program on " + driver->description +
                                               ": set COMMPOOL_DRIVER to cuda or emulated on every rank"));
  }
  return driver;
}

}  // namespace

const internal::Driver& TheDriver(internal::DriverChoice choice) {
  static const std::shared_ptr<const internal::Driver> driver = Open(choice);
  return *driver;
}

std::string DriverLine() {
  const internal::Driver& driver = TheDriver();
  return "driver: " + driver.description + (driver.why_emulated.empty() ? "" : " (there is no GPU here)");
}

void Check(CUresult result) { internal::CheckCuda(TheDriver(), result, {.call = "a CUDA call"}).or_throw(); }

void Check(ncclResult_t result) { internal::CheckNccl(TheDriver(), result, {.call = "an NCCL call"}).or_throw(); }

}  // namespace examples
