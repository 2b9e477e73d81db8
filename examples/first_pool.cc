// Make a pool, allocate, use, free, read its statistics. C++17.
#include <cuda.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <vector>

#include "commpool/pool.h"
#include "examples/support/device.h"

using commpool::Buffer;
using commpool::MiB;
using commpool::Pool;

void PrintStatistics(const char* when, const Pool& pool) {
  const commpool::Statistics stats = pool.stats().value();
  std::printf("%-20s live blocks %d, %d MiB (peak %d MiB); segments %d, %d MiB\n", when,
              static_cast<int>(stats.allocated_blocks.current), static_cast<int>(stats.allocated_bytes.current >> 20),
              static_cast<int>(stats.allocated_bytes.peak >> 20), static_cast<int>(stats.reserved_segments.current),
              static_cast<int>(stats.reserved_bytes.current >> 20));
}

void FillAndCheck(const Buffer& buffer, CUstream stream) {
  constexpr unsigned kBitsOfOne = 0x3f800000;  // 1.0f
  examples::Check(cuMemsetD32Async(examples::AddressOf(buffer.data()), kBitsOfOne, buffer.bytes() / 4, stream));
  for (const float value : examples::Download(buffer, stream)) {
    if (value != 1.0f) throw std::runtime_error("the buffer does not hold what was written to it");
  }
}

int main() try {
  examples::Device device(0);
  commpool::PoolOptions options;
  options.device = device.number;
  options.limit_bytes = MiB(64);
  options.name = "first";
  Pool pool = Pool::create(options).value();
  std::printf("%s\n", examples::DriverLine().c_str());
  PrintStatistics("made:", pool);
  for (int round = 0; round < 3; ++round) {
    Buffer weights = pool.allocate(MiB(4), device.stream).value();
    Buffer scratch = pool.allocate(MiB(8), device.stream).value();
    FillAndCheck(weights, device.stream);
    if (round == 2) PrintStatistics("in the third round:", pool);
  }  // The buffers free themselves: back to the pool, which keeps its segments for the next round.
  PrintStatistics("after three rounds:", pool);

  const commpool::Result<Buffer> too_much = pool.allocate(MiB(100), device.stream);
  if (too_much.ok()) throw std::runtime_error("the pool went over its limit");
  std::printf("100 MiB more? %s\n", too_much.status().message().c_str());

  pool.trim().value();
  PrintStatistics("trimmed:", pool);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "first_pool: %s\n", error.what());
  return 1;
}
