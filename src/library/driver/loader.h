// Opens the CUDA driver and NCCL at run time: the real ones or the emulator's, through the same steps.
//
// Nothing links libcuda, libcudart or libnccl, so one binary starts everywhere and says what is missing. Driver symbols
// come from cuGetProcAddress, each with a version, because dlsym finds the oldest variant of a name.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "commpool/commpool.h"
#include "commpool/status.h"
#include "src/library/driver/tables.h"

namespace commpool::internal {

enum class DriverChoice {
  kCuda = COMMPOOL_DRIVER_CUDA,          // the real driver, or a clear error
  kEmulated = COMMPOOL_DRIVER_EMULATED,  // the emulator
  kAuto = COMMPOOL_DRIVER_AUTO,          // the real driver where it finds a device, else the emulator
};

// "cuda", "emulated" or "auto". Errors name the text.
Result<DriverChoice> ParseDriverChoice(const std::string& text);

// What a driver has refused before, so that no later pool pays for the same refusal.
struct LearnedRefusals {
  // The device offers fabric handles and the driver refuses them (no IMEX channel). Each try costs 130 us on an H200.
  std::atomic<bool> fabric_handles{false};
};

// Tells whether NCCL's last error is new. NCCL never clears it, so the text may be about an earlier failure. Hashes.
struct LastErrorText {
  std::atomic<size_t> text{0};  // the text after the last call that was checked
  std::atomic<size_t> call{0};  // the failed call that the text is about; 0 where the call had succeeded
};

// A symbol that only the emulator's driver has: its clock, in microseconds.
inline constexpr const char* kEmulatorNow = "commpoolEmulatorNow";
using EmulatorNowFunction = double (*)();

// What was opened. Its libraries stay open until the process ends, because other code holds pointers into them.
struct Driver {
  CudaDriver cuda;
  NcclLibrary nccl;
  DriverChoice kind = DriverChoice::kCuda;  // never kAuto
  std::string description;                  // one line: "CUDA driver 13.0, 4 devices, NCCL 2.28.9", or the emulator's
  // Why kAuto did not take the real driver; empty where it did.
  std::string why_emulated;
  std::shared_ptr<LearnedRefusals> refusals = std::make_shared<LearnedRefusals>();
  std::shared_ptr<LastErrorText> last_error_text = std::make_shared<LastErrorText>();
  // Finds a symbol of the emulator (src/emulator/extension.h); null on the real driver.
  std::function<void*(const char* name)> extension = [](const char*) -> void* { return nullptr; };
};

// Which driver to open, and where to look for the libraries.
struct LoaderOptions {
  DriverChoice choice = DriverChoice::kCuda;
  // COMMPOOL_EMULATOR_LIBRARIES: the folder of the emulator's libraries. Empty: look in an install tree
  // (lib/commpool/emulator), beside this library and this program (emulator/, ../emulator/), then in Bazel's runfiles.
  std::string emulator_folder;
  // COMMPOOL_NCCL: the file of the NCCL library. Empty: the one that the process has loaded, else the system's
  // libnccl.so.2.
  std::string nccl_file;
};

// Reads COMMPOOL_DRIVER (else `fallback`), COMMPOOL_EMULATOR_LIBRARIES and COMMPOOL_NCCL. Refuses unknown values of
// COMMPOOL_DRIVER, COMMPOOL_LOG and COMMPOOL_INTERFACE; the error lists the known ones.
Result<LoaderOptions> LoaderOptionsFromEnvironment(DriverChoice fallback);

// Opens, resolves and initialises (cuInit). Errors say where it looked, what is missing and what to set. A second load
// of the same driver gives another table of the same functions.
Result<std::shared_ptr<const Driver>> LoadDriver(const LoaderOptions& options);

}  // namespace commpool::internal
