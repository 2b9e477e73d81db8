#include <functional>
#include <stdexcept>
#include <vector>

#include "tools/stress/host/host_programs.h"

namespace commpool::cli {

namespace {

constexpr uint64_t kKiB = 1024;
constexpr uint64_t kMiB = 1024 * kKiB;

class GrowingProgram {
 public:
  GrowingProgram(HostMachine& machine, commpool_mode mode) : machine_(machine), mode_(mode) {}

  void Run() {
    pool_ = Create([](commpool_pool_options&) {});
    UseStreams();
    UseCaches();
    UseScopes();
    LookAround();
    ChangePeers();
    if (mode_ == COMMPOOL_MODE_FIXED) Register();
    Capture();
    RunOut();
    OutliveAPool();
    machine_.Make("release_stream", [&] { return commpool_release_stream(Stream(1)); });
    End(pool_);
  }

 private:
  CUstream Stream(size_t number) const { return machine_.stream(0, number); }

  commpool_pool Create(const std::function<void(commpool_pool_options&)>& adjust) {
    commpool_pool_options options;
    commpool_pool_options_init(&options);
    options.name = "a pool whose name is longer than short strings are";
    options.mode = mode_;
    options.deadline_ms = 20000;
    adjust(options);
    commpool_pool pool = 0;
    machine_.Make("pool_create", [&] { return commpool_pool_create(&options, &pool); });
    if (pool == 0) throw std::runtime_error("no pool");
    machine_.Know(pool);
    return pool;
  }

  void End(commpool_pool pool) {
    machine_.Make("pool_close", [&] { return commpool_pool_close(pool); });
    machine_.Forget(pool);
    machine_.Make("pool_destroy", [&] { return commpool_pool_destroy(pool); });
  }

  void Trim(uint64_t keep_bytes) {
    uint64_t released = 0;
    machine_.Make("pool_trim", [&] { return commpool_pool_trim(pool_, keep_bytes, &released); });
  }

  // Blocks of many sizes; several streams use them, free them and get them again.
  void UseStreams() {
    machine_.Make("pool_reserve", [&] { return commpool_pool_reserve(pool_, 4 * kMiB); });
    for (int round = 0; round < 2; ++round) {
      std::vector<void*> blocks;
      for (const uint64_t bytes : {1000 * uint64_t{1}, 3 * kKiB, 300 * kKiB, 3 * kMiB, 5 * kMiB}) {
        blocks.push_back(machine_.Allocate(pool_, bytes, Stream(blocks.size() % 3)));
      }
      for (size_t place = 0; place < blocks.size(); place += 2) {
        machine_.Make("record_stream", [&] { return commpool_record_stream(blocks[place], Stream((place + 1) % 3)); });
      }
      machine_.Make("record_stream", [&] { return commpool_record_stream(blocks[4], Stream(2)); });
      for (void* block : blocks) machine_.Free(block);
      machine_.Free(machine_.Allocate(pool_, 7 * kMiB, Stream(2)));
      Trim(4 * kMiB);
    }
    machine_.UseDevice(0);
  }

  // More small blocks than a thread's cache keeps.
  void UseCaches() {
    std::vector<void*> blocks;
    for (size_t number = 0; number < 70; ++number) {
      blocks.push_back(machine_.Allocate(pool_, 512 * (1 + number % 3), Stream(number % 2)));
    }
    for (void* block : blocks) machine_.Free(block);
    blocks.clear();
    for (size_t number = 0; number < 10; ++number) blocks.push_back(machine_.Allocate(pool_, 700, Stream(0)));
    machine_.Make("record_stream", [&] { return commpool_record_stream(blocks.front(), Stream(1)); });
    for (void* block : blocks) machine_.Free(block);
    Trim(0);
  }

  void UseScopes() {
    commpool_scope outer = 0;
    commpool_scope inner = 0;
    machine_.Make("scope_begin", [&] { return commpool_scope_begin(pool_, nullptr, &outer); });
    machine_.Free(machine_.AllocateScoped(0, pool_, 2 * kMiB, Stream(0)));
    commpool_scope_options options;
    commpool_scope_options_init(&options);
    options.filter = COMMPOOL_FILTER_STREAM;
    options.stream = Stream(1);
    options.exhaustion = COMMPOOL_EXHAUSTION_NEXT_SCOPE;
    machine_.Make("scope_begin", [&] { return commpool_scope_begin(pool_, &options, &inner); });
    machine_.Free(machine_.AllocateScoped(COMMPOOL_CURRENT_DEVICE, pool_, 600, Stream(1)));
    machine_.Make("scope_end", [&] { return commpool_scope_end(inner); });
    machine_.Make("scope_end", [&] { return commpool_scope_end(outer); });
  }

  void LookAround() {
    void* const block = machine_.Allocate(pool_, 100 * kKiB, Stream(0));
    commpool_statistics statistics;
    commpool_statistics_init(&statistics);
    machine_.Make("pool_statistics", [&] { return commpool_pool_statistics(pool_, COMMPOOL_PEAKS_STAY, &statistics); });
    machine_.Make("reset_peaks", [&] { return commpool_pool_statistics(pool_, COMMPOOL_PEAKS_RESET, &statistics); });
    std::vector<commpool_block> blocks(64);
    size_t count = 0;
    machine_.Make("pool_blocks",
                  [&] { return commpool_pool_blocks(pool_, blocks.data(), sizeof(blocks[0]), 64, &count); });
    commpool_block found;
    machine_.Make("block_of", [&] { return commpool_block_of(block, &found, sizeof(found)); });
    commpool_plain_allocate allocate = nullptr;
    commpool_plain_free release = nullptr;
    machine_.Make("pool_functions", [&] { return commpool_pool_functions(pool_, &allocate, &release); });
    commpool_holder holder = 0;
    commpool_holder_options options;
    commpool_holder_options_init(&options);
    machine_.Make("add_holder", [&] { return commpool_add_holder(&options, &holder); });
    machine_.Make("remove_holder", [&] { return commpool_remove_holder(holder); });
    machine_.Free(block);
  }

  void ChangePeers() {
    const int peer = 1;
    machine_.Make("pool_grant", [&] { return commpool_pool_set_access(pool_, &peer, 1, COMMPOOL_ACCESS_GRANTED); });
    machine_.Free(machine_.Allocate(pool_, 6 * kMiB, Stream(0)));
    machine_.Make("pool_revoke", [&] { return commpool_pool_set_access(pool_, &peer, 1, COMMPOOL_ACCESS_REVOKED); });
  }

  void Register() {
    const std::vector<ncclComm_t> communicators = machine_.MakeCommunicators();
    for (int turn = 0; turn < 2; ++turn) {
      machine_.Make("register_with", [&] { return commpool_pool_register_with(pool_, communicators[0]); });
      void* const block = machine_.Allocate(pool_, (20 + 20 * static_cast<uint64_t>(turn)) * kMiB, Stream(0));
      uint64_t registered = 0;
      machine_.Make("register_pending", [&] { return commpool_pool_register_pending(pool_, &registered); });
      machine_.Free(block);
      Trim(0);
      if (turn == 0) {
        machine_.Make("deregister", [&] { return commpool_pool_deregister(pool_, communicators[0]); });
      }
    }
    Trim(0);
    machine_.Make("deregister", [&] { return commpool_pool_deregister(pool_, communicators[0]); });
    machine_.Make("abandon", [&] { return commpool_pool_abandon(pool_, communicators[0], COMMPOOL_LIFE_ENDED); });
  }

  void Capture() {
    machine_.driver().cuda.cuCtxSynchronize();  // a capture gets memory that nobody uses
    machine_.Make("pool_reserve", [&] { return commpool_pool_reserve(pool_, 16 * kMiB); });
    const CUstream stream = Stream(2);
    const internal::CudaDriver& cuda = machine_.driver().cuda;
    commpool_capture capture = 0;
    cuda.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    machine_.Make("capture_begin", [&] { return commpool_capture_begin(pool_, stream, &capture); });
    void* const first = machine_.Allocate(pool_, kMiB, stream);
    void* const second = machine_.Allocate(pool_, 800, stream);
    machine_.Free(first);
    void* const third = machine_.Allocate(pool_, kMiB / 2, stream);
    machine_.Make("capture_end", [&] { return commpool_capture_end(capture); });
    CUgraph graph = nullptr;
    if (cuda.cuStreamEndCapture(stream, &graph) != CUDA_SUCCESS) machine_.Violate("the capture broke");
    machine_.Free(second);
    machine_.Free(third);
    cuda.cuGraphDestroy(graph);
  }

  // A pool at its limit, and a device at its limit.
  void RunOut() {
    const commpool_pool limited = Create([](commpool_pool_options& options) {
      options.limit_bytes = 4 * kMiB;
      options.release_threshold_bytes = kMiB;
    });
    void* const block = machine_.Allocate(limited, 2 * kMiB, Stream(0));
    void* none = nullptr;
    machine_.Make(
        "pool_allocate beyond the limit", [&] { return commpool_pool_allocate(limited, 8 * kMiB, Stream(1), &none); },
        COMMPOOL_OUT_OF_MEMORY);
    machine_.Make("set_device_limit", [&] { return commpool_set_device_bound(0, COMMPOOL_DEVICE_LIMIT, 64 * kMiB); });
    machine_.Make(
        "pool_allocate beyond the device's limit",
        [&] { return commpool_pool_allocate(pool_, 128 * kMiB, Stream(1), &none); }, COMMPOOL_OUT_OF_MEMORY);
    machine_.Make("set_device_limit", [&] { return commpool_set_device_bound(0, COMMPOOL_DEVICE_LIMIT, UINT64_MAX); });
    machine_.Free(block);
    machine_.Free(machine_.Allocate(limited, 4 * kMiB, Stream(1)));
    End(limited);
  }

  void OutliveAPool() {
    const commpool_pool ended = Create([](commpool_pool_options&) {});
    void* const block = machine_.Allocate(ended, 3 * kMiB, Stream(0));
    machine_.Make("pool_destroy", [&] { return commpool_pool_destroy(ended); });
    machine_.Forget(ended);
    machine_.Free(block);
  }

  HostMachine& machine_;
  const commpool_mode mode_;
  commpool_pool pool_ = 0;
};

}  // namespace

void RunFixed(HostMachine& machine) { GrowingProgram(machine, COMMPOOL_MODE_FIXED).Run(); }
void RunExpandable(HostMachine& machine) { GrowingProgram(machine, COMMPOOL_MODE_EXPANDABLE).Run(); }

}  // namespace commpool::cli
