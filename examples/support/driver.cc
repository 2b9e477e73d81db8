#include "examples/support/driver.h"

#include <memory>

#include "commpool/commpool.h"
#include "commpool/status.h"
#include "src/driver/diagnosis.h"

namespace examples {

namespace {

using commpool::DriverChoice;

std::shared_ptr<const commpool::Driver> Open(DriverChoice choice) {
  commpool::LoaderOptions options = commpool::LoaderOptionsFromEnvironment(choice).value();
  if (choice != DriverChoice::kAuto) options.choice = choice;
  std::shared_ptr<const commpool::Driver> driver = commpool::LoadDriver(options).value();

  const bool emulated = driver->kind == DriverChoice::kEmulated;
  commpool::detail::FromC(commpool_initialize(emulated ? COMMPOOL_DRIVER_EMULATED : COMMPOOL_DRIVER_CUDA)).value();
  if (commpool_driver_description() != driver->description) {
    throw commpool::Error(commpool::Status(commpool::StatusCode::kFailedPrecondition,
                                           "commpool runs on " + std::string(commpool_driver_description()) +
                                               ", the program on " + driver->description +
                                               ": set COMMPOOL_DRIVER to cuda or emulated on every rank"));
  }
  return driver;
}

}  // namespace

const commpool::Driver& TheDriver(DriverChoice choice) {
  static const std::shared_ptr<const commpool::Driver> driver = Open(choice);
  return *driver;
}

std::string DriverLine() {
  const commpool::Driver& driver = TheDriver();
  return "driver: " + driver.description + (driver.why_emulated.empty() ? "" : " (there is no GPU here)");
}

void Check(CUresult result) { commpool::CheckCuda(TheDriver(), result, {.call = "a CUDA call"}).value(); }

void Check(ncclResult_t result) { commpool::CheckNccl(TheDriver(), result, {.call = "an NCCL call"}).value(); }

}  // namespace examples
