// Ranks all-reduce gradients that were routed into a symmetric pool: memory at equal offsets on every rank, known to
// NCCL as a window. C++20. Run it under mpirun, one rank for each GPU.
#include <cuda.h>
#include <nccl.h>

#include <bit>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "commpool/pool.h"
#include "commpool/scope.h"
#include "examples/support/device.h"
#include "examples/support/job.h"

using commpool::allocate;
using commpool::Buffer;
using commpool::GiB;
using commpool::MiB;
using commpool::Pool;
using commpool::PoolScope;

struct Batch {
  float value = 0;
};

// Stands for a model of one parameter: a gradient is (rank + 1) times the batch's value.
struct OneParameterJob : examples::Job {
  using Job::Job;
  const uint64_t bytes = MiB(4);
  const size_t count = bytes / sizeof(float);
  std::vector<Batch> batches = {{2}, {4}, {6}};
  float parameter = 0;

  void backward(const Batch& batch, void* gradients) {
    const float mine = static_cast<float>(rank + 1) * batch.value;
    expected_sum_ = batch.value * static_cast<float>(ranks * (ranks + 1) / 2);
    examples::Check(cuMemsetD32Async(examples::AddressOf(gradients), std::bit_cast<unsigned>(mine), count, stream));
  }

  void update(const Buffer& gradients, float factor) {
    for (const float sum : examples::Download(gradients, stream)) {
      // Whole numbers: their sums are exact in any order.
      if (sum == expected_sum_) continue;
      throw std::runtime_error("a sum is " + std::to_string(sum) + ", not " + std::to_string(expected_sum_));
    }
    parameter -= factor * expected_sum_;
  }

 private:
  float expected_sum_ = 0;
};

int main(int argc, char** argv) try {
  OneParameterJob job(argc, argv);
  Pool pool = Pool::create({.device = job.device, .symmetric_across = job.comm}).value();
  if (job.rank == 0) std::printf("%s\n", examples::DriverLine().c_str());
  pool.reserve(GiB(1)).or_throw();  // collective: agree, grow, register
  {
    PoolScope scope(pool);                                       // begin/end-allocate-to-pool
    Buffer gradients = allocate(job.bytes, job.stream).value();  // routed, as deep as it may be called
    for (Batch& batch : job.batches) {
      job.backward(batch, gradients.data());
      // update() takes the mean: before NCCL 2.30.3 ncclAvg of floats has no symmetric kernel.
      examples::Check(
          ncclAllReduce(gradients.data(), gradients.data(), job.count, ncclFloat, ncclSum, job.comm, job.stream));
      job.update(gradients, 1.0f / static_cast<float>(job.ranks));
    }
    const commpool::WindowPlace place = commpool::window_of(gradients.data(), job.comm).value();
    if (job.rank == 0) {
      std::printf("%d ranks, %zu batches of %llu MiB at offset %llu of a window: every sum is right, parameter %g\n",
                  job.ranks, job.batches.size(), static_cast<unsigned long long>(job.bytes >> 20),
                  static_cast<unsigned long long>(place.offset), job.parameter);
    }
  }
  pool.close().or_throw();  // collective
  return 0;
} catch (const std::exception& error) {
  return examples::JobFailed(error);
}
