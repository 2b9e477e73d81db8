// One thread of `commpool_stress engine`: random steps on its own blocks and streams, and on blocks that workers hand
// to each other. Only its own thread uses it; Exchange is for all.
#ifndef COMMPOOL_TOOLS_STRESS_ENGINE_WORKER_H_
#define COMMPOOL_TOOLS_STRESS_ENGINE_WORKER_H_

#include <cuda.h>

#include <array>
#include <mutex>
#include <optional>
#include <random>
#include <vector>

#include "tools/stress/engine/machine.h"

namespace commpool::cli {

struct StressBlock {
  static constexpr size_t kNoStream = SIZE_MAX;

  CUdeviceptr address = 0;
  uint64_t bytes = 0;
  size_t pool = 0;
  size_t home =
      kNoStream;  // this worker's stream that the block was allocated for; none where it is another's, or gone
  size_t last = kNoStream;  // this worker's stream that used it last; none where the host has waited for it
  uint8_t value = 0;        // the byte that fills the block
};

// Blocks on their way from one worker to another.
class Exchange {
 public:
  void Give(const StressBlock& block);
  std::optional<StressBlock> Take();

 private:
  std::mutex mutex_;
  std::vector<StressBlock> blocks_;
};

class StressWorker {
 public:
  StressWorker(StressMachine& machine, Exchange& exchange, uint64_t seed);
  // Frees the remaining blocks and destroys the streams.
  ~StressWorker();
  StressWorker(const StressWorker&) = delete;
  StressWorker& operator=(const StressWorker&) = delete;

  // One random operation.
  void Step();
  // False where the fault could not be planted yet.
  bool PlantFault(Plant plant);

 private:
  uint64_t Random(uint64_t below) { return random_() % below; }
  uint64_t RandomBytes();
  void TakeStep(uint64_t kind);
  void Destroy(CUstream stream);
  void ReplaceStream(size_t stream);
  bool PlantInBlock(Plant plant);
  void PlantCapture();
  bool PlantSkippedWait();
  size_t RandomStream() { return Random(streams_.size()); }
  StressBlock TakeOut(size_t index);
  void Expect(const Status& status, const char* what);

  void Allocate();
  void Use(StressBlock& block);
  void Free(const StressBlock& block);
  void Hand();
  void Receive();
  void ChangePool();
  void WaitAcross();
  // A block that belongs to a graph, and replays of the graph.
  void CaptureAndReplay();
  void WorkInCapture(size_t pool, size_t stream, std::vector<StressBlock>& left);

  // The stream's later work waits for the block's last use.
  void Follow(StressBlock& block, size_t stream);
  void Write(StressBlock& block, size_t stream);
  void Check(StressBlock& block, size_t stream);

  StressMachine& machine_;
  Exchange& exchange_;
  const internal::CudaDriver& cuda_;
  std::mt19937_64 random_;
  internal::ContextGuard current_;
  internal::Event event_;
  std::array<CUstream, 3> streams_ = {};
  std::vector<StressBlock> blocks_;
};

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_STRESS_ENGINE_WORKER_H_
