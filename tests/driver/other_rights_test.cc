// A process with more rights than the user who started it (setuid) does not trust its environment: no variable names a
// library to open, and the emulator stays closed.
#include <gtest/gtest.h>
#include <link.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "src/library/base/environment.h"
#include "src/library/driver/loader.h"
#include "src/library/driver/shared_library.h"
#include "tests/base/expect_status.h"

namespace commpool::internal {
namespace {

// Where the kernel tells a process its rights: behind the initial environment.
ElfW(auxv_t) * AuxiliaryVector() {
  char** place = environ;
  while (*place != nullptr) ++place;
  return reinterpret_cast<ElfW(auxv_t)*>(place + 1);
}

// As the kernel does for a setuid program. Call it before the environment changes, because it moves then.
void TakeOtherRights() {
  for (ElfW(auxv_t)* entry = AuxiliaryVector(); entry->a_type != AT_NULL; ++entry) {
    if (entry->a_type == AT_SECURE) entry->a_un.a_val = 1;
  }
}

TEST(OtherRights, HearNothingOfTheEnvironmentAndOpenNoEmulator) {
  const EmulatorFiles emulator = FindEmulator("").value();
  const std::string folder = emulator.cuda.substr(0, emulator.cuda.rfind('/'));
  TakeOtherRights();
  ASSERT_FALSE(Environment::Trusted());
  setenv("COMMPOOL_DRIVER", "emulated", 1);
  setenv("COMMPOOL_EMULATOR_LIBRARIES", folder.c_str(), 1);
  setenv("COMMPOOL_NCCL", emulator.nccl.c_str(), 1);

  const LoaderOptions options = LoaderOptionsFromEnvironment(DriverChoice::kCuda).value();
  EXPECT_EQ(options.choice, DriverChoice::kCuda);
  EXPECT_EQ(options.emulator_folder, "");
  EXPECT_EQ(options.nccl_file, "");

  ExpectFailure(LoadDriver({DriverChoice::kEmulated, "", ""}).status(), StatusCode::kNotSupported,
                "more rights than who started it");
}

}  // namespace
}  // namespace commpool::internal
