// Streams that pools know: those that blocks were allocated for, and those that were recorded for blocks.
//
// A pool knows a stream by its handle, and the driver gives the handle of a destroyed stream to another one. So the
// program tells the pools before it destroys a stream (commpool_release_stream). They know a stream as long as they
// have the memory that it used. Not thread-safe: the machine's lock guards it.
#ifndef COMMPOOL_SRC_EMULATOR_CUDA_POOL_STREAMS_H_
#define COMMPOOL_SRC_EMULATOR_CUDA_POOL_STREAMS_H_

#include <cuda.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>

namespace commpool::internal::emulator {

class PoolStreams {
 public:
  // By the stream's number: handles recycle.
  void Used(uint64_t stream, CUdeviceptr block, const std::string& pool);
  void Released(uint64_t stream) { known_.erase(stream); }
  // The segment is gone.
  void Forget(CUdeviceptr address, uint64_t bytes);

  // The stream is destroyed. Returns the pool that used it last and still knows it; empty where none does.
  std::string Destroyed(uint64_t stream);

 private:
  struct Uses {
    std::string pool;
    std::set<CUdeviceptr> blocks;
  };

  std::map<uint64_t, Uses> known_;
};

}  // namespace commpool::internal::emulator

#endif  // COMMPOOL_SRC_EMULATOR_CUDA_POOL_STREAMS_H_
