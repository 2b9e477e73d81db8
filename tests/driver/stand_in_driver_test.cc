// The loader's errors for a driver that exists and cannot be used. The stand-in is opened first, so that the driver's
// name finds it.
#include "tests/driver/stand_in_driver.h"

#include <cuda.h>
#include <gtest/gtest.h>

#include <optional>

#include "src/library/driver/loader.h"
#include "src/library/driver/shared_library.h"
#include "src/library/driver/tables.h"
#include "tests/base/expect_status.h"

namespace commpool::internal {
namespace {

class UnusableDriver : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { library_.emplace(SharedLibrary::Open("tests/driver/stand_in/libcuda.so.1").value()); }
  void SetUp() override { SettingsOfIt() = {CUDA_SUCCESS, 1, nullptr}; }

  static StandInDriver& SettingsOfIt() {
    return *static_cast<StandInDriver*>(library_->Symbol("commpoolStandInDriver"));
  }
  static Status Load(DriverChoice choice, const std::string& emulator_folder = "") {
    return LoadDriver({choice, emulator_folder, ""}).status();
  }

  static inline std::optional<SharedLibrary> library_;
};

TEST_F(UnusableDriver, ThatDoesNotInitialiseIsNamedWithTheError) {
  SettingsOfIt().init_result = CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
  const Status status = Load(DriverChoice::kCuda);
  ExpectFailure(status, StatusCode::kNotFound, "cuInit failed: THE_STAND_INS_ERROR");
  ExpectFailure(status, StatusCode::kNotFound, "COMMPOOL_DRIVER=emulated");
}

TEST_F(UnusableDriver, ThatFindsNoDeviceIsAClearError) {
  SettingsOfIt().devices = 0;
  const Status status = Load(DriverChoice::kCuda);
  ExpectFailure(status, StatusCode::kNotFound, "finds no device");
  EXPECT_NE(status.message().find("CUDA_VISIBLE_DEVICES"), std::string::npos) << status.message();
}

TEST_F(UnusableDriver, ThatIsTooOldIsNamedWithItsMissingFunctions) {
  for (const char* const lacking : {"cuMemCreate", "cuStreamGetId"}) {
    SettingsOfIt().lacking = lacking;
    ExpectFailure(Load(DriverChoice::kCuda), StatusCode::kNotSupported, "lacks " + std::string(lacking));
  }
}

TEST_F(UnusableDriver, MayLackWhatIsOptional) {
  SettingsOfIt().lacking = "cuMulticastGetGranularity";
  const CudaDriver cuda = ResolveCuda(*library_).value();
  size_t granularity = 0;
  EXPECT_EQ(cuda.cuMulticastGetGranularity(&granularity, nullptr, CU_MULTICAST_GRANULARITY_MINIMUM),
            CUDA_ERROR_NOT_SUPPORTED);
}

TEST_F(UnusableDriver, AndAMissingEmulatorAreBothExplained) {
  SettingsOfIt().devices = 0;
  const Status status = Load(DriverChoice::kAuto, "/nowhere");
  ExpectFailure(status, StatusCode::kNotFound, "finds no device");
  EXPECT_NE(status.message().find("/nowhere"), std::string::npos) << status.message();
}

// Last, because from now on the emulator is loaded too.
TEST_F(UnusableDriver, YieldsToTheEmulatorUnderAuto) {
  SettingsOfIt().devices = 0;
  const std::shared_ptr<const Driver> driver = LoadDriver({DriverChoice::kAuto, "", ""}).value();
  EXPECT_EQ(driver->kind, DriverChoice::kEmulated);
  EXPECT_NE(driver->why_emulated.find("finds no device"), std::string::npos) << driver->why_emulated;
  EXPECT_TRUE(driver->nccl.available());
  void* memory = nullptr;
  EXPECT_EQ(driver->nccl.ncclMemAlloc(&memory, 0), ncclSuccess);  // the emulated NCCL finds the emulated driver
}

}  // namespace
}  // namespace commpool::internal
