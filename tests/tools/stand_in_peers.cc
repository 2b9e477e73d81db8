// In place of the libraries that tools/bench builds from PyTorch's and RMM's allocators: the same functions, with
// answers that a test can predict. They use the driver that the process has loaded.
#include <cuda.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#define BENCH_API extern "C" __attribute__((visibility("default")))

namespace {

constexpr size_t kStep = size_t{2} << 20;

size_t Rounded(size_t bytes) { return (bytes + kStep - 1) / kStep * kStep; }

void* Make(size_t bytes) {
  CUdeviceptr memory = 0;
  return cuMemAlloc(&memory, bytes) == CUDA_SUCCESS ? reinterpret_cast<void*>(memory) : nullptr;
}

bool Expandable() {
  const char* const setting = std::getenv("PYTORCH_CUDA_ALLOC_CONF");
  return setting != nullptr && std::string(setting) == "expandable_segments:True";
}

bool is_arena = false;
size_t arena_left = 0;
uint64_t upstream_calls = 0;

// The arena loses a quarter of each block.
size_t CostInArena(size_t bytes) { return bytes + bytes / 4; }

}  // namespace

// Native segments take twice as much memory as expandable ones.
BENCH_API void bench_torch_initialise() {
  while (std::getenv("STAND_IN_HANGS") != nullptr) pause();
}
BENCH_API void* bench_torch_allocate(size_t bytes, void*) { return Make(Rounded(bytes) * (Expandable() ? 1 : 2)); }
BENCH_API void bench_torch_free(void* block) { cuMemFree(reinterpret_cast<CUdeviceptr>(block)); }
BENCH_API void bench_torch_record_stream(void*, void*) {}
BENCH_API void bench_torch_empty_cache() {}

BENCH_API bool bench_rmm_initialise(const char* kind, size_t bytes) {
  is_arena = std::string(kind) == "arena";
  arena_left = bytes;
  return is_arena || bytes == 0;
}
BENCH_API void* bench_rmm_allocate(size_t bytes, void*) {
  if (is_arena && CostInArena(bytes) > arena_left) return nullptr;
  if (is_arena) arena_left -= CostInArena(bytes);
  ++upstream_calls;
  return Make(Rounded(bytes));
}
BENCH_API void bench_rmm_free(void* block, size_t bytes, void*) {
  if (is_arena) arena_left += CostInArena(bytes);
  ++upstream_calls;
  cuMemFree(reinterpret_cast<CUdeviceptr>(block));
}
BENCH_API void bench_rmm_finish() {}
BENCH_API void bench_rmm_upstream(uint64_t* calls, double* microseconds) {
  *calls = upstream_calls;
  *microseconds = static_cast<double>(upstream_calls);
}
