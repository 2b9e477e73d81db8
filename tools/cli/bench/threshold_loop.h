// A loop that allocates, uses, frees and synchronises, from a pool with a release threshold. One thread.
#ifndef COMMPOOL_TOOLS_CLI_BENCH_THRESHOLD_LOOP_H_
#define COMMPOOL_TOOLS_CLI_BENCH_THRESHOLD_LOOP_H_

#include <cstdint>
#include <memory>

#include "commpool/status.h"
#include "tools/cli/solo_device.h"

namespace commpool::cli {

enum class ThresholdPool { kCommpool, kCudaAsync };

class ThresholdLoop {
 public:
  // A turn allocates, writes and frees four blocks of a quarter of `bytes`. kNotSupported where the device has no such
  // pool.
  static Result<std::unique_ptr<ThresholdLoop>> Create(const SoloDevice& device, ThresholdPool pool, uint64_t bytes,
                                                       uint64_t threshold_bytes);
  virtual ~ThresholdLoop() = default;

  enum class Use { kWhole, kTouch };
  // Microseconds for one turn, which writes whole blocks or only their beginnings. The host's real time; virtual time
  // on the emulator.
  Result<double> Turn(Use use);
  // Whether the pool has taken memory from the driver since the last call.
  virtual bool Grew() = 0;

 protected:
  ThresholdLoop(const SoloDevice& device, uint64_t bytes) : device_(device), bytes_(bytes) {}

  virtual void* Allocate(uint64_t bytes, CUstream stream) = 0;
  virtual void Free(void* block, CUstream stream) = 0;

 private:
  double NowInMicroseconds() const;
  Status AllocateUseFree(CUstream stream, Use use);

  const SoloDevice& device_;
  const uint64_t bytes_;
};

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_CLI_BENCH_THRESHOLD_LOOP_H_
