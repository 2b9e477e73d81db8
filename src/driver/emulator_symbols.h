// The emulator's own calls that `Launch`, the annotations and the metering make. src/emulator/extension.h declares them
// too, but this folder ranks below the emulator's and cannot include it; tests/driver compares the two.
#ifndef COMMPOOL_SRC_DRIVER_EMULATOR_SYMBOLS_H_
#define COMMPOOL_SRC_DRIVER_EMULATOR_SYMBOLS_H_

#include <cuda.h>

#include <cstddef>

namespace commpool::internal {

inline constexpr const char* kEmulatorLaunch = "commpoolEmulatorLaunch";
inline constexpr const char* kEmulatorSetting = "commpoolEmulatorSetting";
inline constexpr const char* kEmulatorBlockAllocated = "commpoolEmulatorBlockAllocated";
inline constexpr const char* kEmulatorBlockFreed = "commpoolEmulatorBlockFreed";
inline constexpr const char* kEmulatorBlockRecorded = "commpoolEmulatorBlockRecorded";
inline constexpr const char* kEmulatorStreamReleased = "commpoolEmulatorStreamReleased";
inline constexpr const char* kEmulatorCaptureAnnounced = "commpoolEmulatorCaptureAnnounced";
inline constexpr const char* kEmulatorSegmentSleeps = "commpoolEmulatorSegmentSleeps";
inline constexpr const char* kEmulatorNow = "commpoolEmulatorNow";

struct EmulatorRange {
  CUdeviceptr address = 0;
  size_t bytes = 0;
};

struct EmulatorAccess {
  const char* name;
  const EmulatorRange* reads;
  size_t read_count;
  const EmulatorRange* writes;
  size_t write_count;
  double duration_us;
};

using EmulatorKernel = void (*)(void* context, const void* const* reads, void* const* writes);
using EmulatorLaunchFunction = CUresult (*)(CUstream stream, const EmulatorAccess* access, EmulatorKernel kernel,
                                            void* context);
using EmulatorNowFunction = double (*)();  // microseconds

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_DRIVER_EMULATOR_SYMBOLS_H_
