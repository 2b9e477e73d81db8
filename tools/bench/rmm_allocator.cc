// RMM's pool and arena behind C functions, for `commpool replay --peers`, which opens this library at run time.
// build_rmm_allocator.sh builds it where the wheels of librmm and rapids-logger are; Bazel does not.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <rmm/aligned.hpp>
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <string_view>

#define BENCH_API extern "C" __attribute__((visibility("default")))

namespace {

constexpr std::size_t kAlignment = rmm::CUDA_ALLOCATION_ALIGNMENT;

std::atomic<uint64_t> upstream_calls{0};
std::atomic<int64_t> upstream_nanoseconds{0};

// Prints once: a trace that does not fit fails at each size that is tried.
void Say(const std::exception& error) {
  static bool said = false;
  if (!said) std::fprintf(stderr, "RMM: %s\n", error.what());
  said = true;
}

// cudaMalloc and cudaFree, counted and timed: how RMM's calls to the driver grow.
class Upstream {
 public:
  void* allocate_sync(std::size_t bytes, std::size_t alignment = kAlignment) {
    return Timed([&] { return memory_.allocate_sync(bytes, alignment); });
  }
  void deallocate_sync(void* block, std::size_t bytes, std::size_t alignment = kAlignment) noexcept {
    Timed([&] { return memory_.deallocate_sync(block, bytes, alignment), nullptr; });
  }
  void* allocate(cuda::stream_ref, std::size_t bytes, std::size_t alignment = kAlignment) {
    return allocate_sync(bytes, alignment);
  }
  void deallocate(cuda::stream_ref, void* block, std::size_t bytes, std::size_t alignment = kAlignment) noexcept {
    deallocate_sync(block, bytes, alignment);
  }
  friend bool operator==(const Upstream&, const Upstream&) { return true; }
  friend bool operator!=(const Upstream&, const Upstream&) { return false; }
  friend void get_property(const Upstream&, cuda::mr::device_accessible) noexcept {}

 private:
  template <typename Call>
  static void* Timed(Call&& call) {
    struct Stop {
      std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
      ~Stop() {
        upstream_nanoseconds += std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count();
        ++upstream_calls;
      }
    } stop;
    return call();
  }

  rmm::mr::cuda_memory_resource memory_;
};

std::optional<rmm::mr::pool_memory_resource> pool;
std::optional<rmm::mr::arena_memory_resource> arena;

}  // namespace

BENCH_API void bench_rmm_finish() {
  pool.reset();
  arena.reset();
}

BENCH_API bool bench_rmm_initialise(const char* kind, size_t bytes) {
  bench_rmm_finish();
  try {
    if (std::string_view(kind) == "pool") pool.emplace(Upstream(), bytes);
    if (std::string_view(kind) == "arena") arena.emplace(Upstream(), bytes);
  } catch (const std::exception& error) {
    Say(error);
  }
  return pool.has_value() || arena.has_value();
}

// Null for out of memory.
BENCH_API void* bench_rmm_allocate(size_t bytes, void* stream) {
  const cuda::stream_ref where{static_cast<cudaStream_t>(stream)};
  try {
    return pool ? pool->allocate(where, bytes, kAlignment) : arena->allocate(where, bytes, kAlignment);
  } catch (const std::exception& error) {
    Say(error);
    return nullptr;
  }
}

BENCH_API void bench_rmm_free(void* block, size_t bytes, void* stream) {
  const cuda::stream_ref where{static_cast<cudaStream_t>(stream)};
  if (pool) {
    pool->deallocate(where, block, bytes, kAlignment);
  } else {
    arena->deallocate(where, block, bytes, kAlignment);
  }
}

BENCH_API void bench_rmm_upstream(uint64_t* calls, double* microseconds) {
  *calls = upstream_calls;
  *microseconds = static_cast<double>(upstream_nanoseconds) / 1000;
}
