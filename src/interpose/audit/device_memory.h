// How much memory of each device is in use, by the driver's own word. Any thread.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

namespace commpool::audit {

class DeviceMemory {
 public:
  // Before a context of the device is made: cuMemGetInfo needs one, so NVML is asked. The first one counts as the
  // start.
  void NoteBefore(int device);
  // After it was made.
  void NoteContext(int device, CUcontext context);
  void ForgetContext(int device);

  // Free memory of a device now; nothing where there is neither a context nor NVML.
  std::optional<int64_t> FreeBytes(int device);
  // What more is in use than before this process used the device.
  std::optional<int64_t> UsedSinceStart(int device);
  // Whether the start was before the first context, so that its share is known.
  bool StartedBeforeContext(int device);

  // A pool of the driver's that blocks came from.
  void NotePool(int device, CUmemoryPool pool);
  void ForgetPool(CUmemoryPool pool);
  // What these pools hold of a device, used or not.
  int64_t PoolBytes(int device);
  // What the driver holds for graphs that allocate, used or not.
  int64_t GraphBytes(int device);

  std::vector<int> Devices();

 private:
  struct Device {
    CUcontext context = nullptr;
    std::optional<int64_t> free_at_start;
    bool started_before_context = false;
  };

  CUcontext ContextOf(int device);

  std::mutex mutex_;  // of what is below; no call of the driver is made under it
  std::map<int, Device> devices_;
  std::map<CUmemoryPool, int> pools_;
};

}  // namespace commpool::audit
