#include <algorithm>
#include <array>
#include <stdexcept>
#include <vector>

#include "tools/stress/host/host_programs.h"

namespace commpool::cli {

namespace {

constexpr uint64_t kKiB = 1024;
constexpr uint64_t kMiB = 1024 * kKiB;
constexpr size_t kRanks = 2;

class SymmetricProgram {
 public:
  explicit SymmetricProgram(HostMachine& machine) : machine_(machine), home_(machine.MakeCommunicators()) {}

  void Run() {
    Create(pools_.data());
    Reserve(4 * kMiB);
    CallTogether();
    UseBlocks();
    Register();
    UseScopes();
    Capture();
    RunOut();
    Publish();
    Trim(0);
    machine_.Make("pools_verify", [&] { return commpool_pools_verify(pools_.data(), kRanks); });
    machine_.Make("pools_close", [&] { return commpool_pools_close(pools_.data(), kRanks); });
    for (const commpool_pool pool : pools_) {
      machine_.Forget(pool);
      machine_.Make("pool_destroy", [&] { return commpool_pool_destroy(pool); });
    }
  }

 private:
  using Blocks = std::array<void*, kRanks>;

  void Create(commpool_pool* pools) {
    std::array<commpool_pool_options, kRanks> options;
    for (size_t rank = 0; rank < kRanks; ++rank) {
      commpool_pool_options_init(&options[rank]);
      options[rank].name = "a pool whose name is longer than short strings are";
      options[rank].device = static_cast<int>(rank);
      options[rank].symmetric_across = home_[rank];
      options[rank].deadline_ms = 5000;
    }
    machine_.Make("pools_create", [&] { return commpool_pools_create(options.data(), kRanks, pools); });
    for (size_t rank = 0; rank < kRanks; ++rank) {
      if (pools[rank] == 0) throw std::runtime_error("no pools");
      machine_.Know(pools[rank]);
    }
  }

  // Calls for each rank's pool together with another pool, in the same rounds.
  void CallTogether() {
    std::array<commpool_pool, 2 * kRanks> both = {};
    std::copy(pools_.begin(), pools_.end(), both.begin());
    commpool_pool* const beside = both.data() + kRanks;
    Create(beside);
    machine_.Make("pools_reserve of both", [&] { return commpool_pools_reserve(both.data(), both.size(), 6 * kMiB); });
    machine_.Make("pools_reclaim of both", [&] { return commpool_pools_reclaim(both.data(), both.size(), nullptr); });
    machine_.Make("pools_verify of both", [&] { return commpool_pools_verify(both.data(), both.size()); });
    machine_.Make("pools_close of those beside", [&] { return commpool_pools_close(beside, kRanks); });
    for (size_t rank = 0; rank < kRanks; ++rank) {
      machine_.Forget(beside[rank]);
      machine_.Make("pool_destroy", [&] { return commpool_pool_destroy(beside[rank]); });
    }
  }

  void Reserve(uint64_t bytes) {
    machine_.Make("pools_reserve", [&] { return commpool_pools_reserve(pools_.data(), kRanks, bytes); });
  }
  void Reclaim() {
    std::array<uint64_t, kRanks> reclaimed = {};
    machine_.Make("pools_reclaim", [&] { return commpool_pools_reclaim(pools_.data(), kRanks, reclaimed.data()); });
  }
  void Trim(uint64_t keep_bytes) {
    std::array<uint64_t, kRanks> released = {};
    machine_.Make("pools_trim",
                  [&] { return commpool_pools_trim(pools_.data(), kRanks, keep_bytes, released.data()); });
  }

  CUstream Stream(size_t rank, size_t number) const { return machine_.stream(static_cast<int>(rank), number); }

  Blocks Allocate(uint64_t bytes, size_t stream) {
    Blocks blocks = {};
    for (size_t rank = 0; rank < kRanks; ++rank) {
      machine_.UseDevice(static_cast<int>(rank));
      blocks[rank] = machine_.Allocate(pools_[rank], bytes, Stream(rank, stream));
    }
    machine_.UseDevice(0);
    return blocks;
  }
  void Free(const Blocks& blocks) {
    for (void* block : blocks) machine_.Free(block);
  }

  void UseBlocks() {
    std::vector<Blocks> blocks;
    for (const uint64_t bytes : {kKiB, 100 * kKiB, kMiB}) blocks.push_back(Allocate(bytes, blocks.size()));
    for (size_t rank = 0; rank < kRanks; ++rank) {
      ncclWindow_vidmem* window = nullptr;
      uint64_t offset = 0;
      machine_.Make("window_of", [&] { return commpool_window_of(blocks[0][rank], home_[rank], &window, &offset); });
      machine_.Make("record_stream", [&] { return commpool_record_stream(blocks[1][rank], Stream(rank, 2)); });
      int eligible = 0;
      const char* reason = nullptr;
      machine_.Make("nvls_eligible",
                    [&] { return commpool_nvls_eligible(blocks[2][rank], kKiB, home_[rank], &eligible, &reason); });
    }
    for (const Blocks& each : blocks) Free(each);
    Reclaim();
    Reserve(8 * kMiB);
  }

  void Register() {
    const std::vector<ncclComm_t> second = machine_.MakeCommunicators();
    machine_.Make("pools_register_with",
                  [&] { return commpool_pools_register_with(pools_.data(), second.data(), kRanks); });
    Reserve(16 * kMiB);
    Free(Allocate(2 * kMiB, 1));
    Trim(8 * kMiB);
    machine_.Make("pools_deregister", [&] { return commpool_pools_deregister(pools_.data(), second.data(), kRanks); });
  }

  void UseScopes() {
    for (size_t rank = 0; rank < kRanks; ++rank) {
      commpool_scope scope = 0;
      machine_.Make("scope_begin", [&] { return commpool_scope_begin(pools_[rank], nullptr, &scope); });
      machine_.UseDevice(static_cast<int>(rank));
      void* const block = machine_.AllocateScoped(static_cast<int>(rank), pools_[rank], kMiB, Stream(rank, 0));
      machine_.Make("scope_end", [&] { return commpool_scope_end(scope); });
      machine_.Free(block);
    }
    machine_.UseDevice(0);
  }

  void Capture() {
    const internal::CudaDriver& cuda = machine_.driver().cuda;
    for (size_t rank = 0; rank < kRanks; ++rank) {
      const CUstream stream = Stream(rank, 1);
      machine_.UseDevice(static_cast<int>(rank));
      commpool_capture capture = 0;
      cuda.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
      machine_.Make("capture_begin", [&] { return commpool_capture_begin(pools_[rank], stream, &capture); });
      void* const block = machine_.Allocate(pools_[rank], 64 * kKiB, stream);
      machine_.Free(block);
      machine_.Make("capture_end", [&] { return commpool_capture_end(capture); });
      CUgraph graph = nullptr;
      if (cuda.cuStreamEndCapture(stream, &graph) != CUDA_SUCCESS) machine_.Violate("the capture broke");
      cuda.cuGraphDestroy(graph);
    }
    machine_.UseDevice(0);
    Reclaim();
  }

  void RunOut() {
    for (size_t rank = 0; rank < kRanks; ++rank) {
      void* none = nullptr;
      machine_.Make(
          "pool_allocate of too much",
          [&] { return commpool_pool_allocate(pools_[rank], 900 * kMiB, Stream(rank, 0), &none); }, COMMPOOL_EXHAUSTED);
    }
    for (const uint64_t bytes : {900 * kMiB}) {
      machine_.Make(
          "pools_reserve of too much", [&] { return commpool_pools_reserve(pools_.data(), kRanks, bytes); },
          COMMPOOL_OUT_OF_MEMORY);
    }
  }

  // More calls than the library publishes at once.
  void Publish() {
    for (size_t number = 0; number < 70; ++number) Free(Allocate(kKiB, number % 2));
    Reclaim();
  }

  HostMachine& machine_;
  const std::vector<ncclComm_t> home_;
  std::array<commpool_pool, kRanks> pools_ = {};
};

}  // namespace

void RunSymmetric(HostMachine& machine) { SymmetricProgram(machine).Run(); }

}  // namespace commpool::cli
