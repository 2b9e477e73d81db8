// The ranks of an MPI program agree over MPI: commpool opens no port, and needs no address that all hosts can reach.
// C++20. Run it under mpirun, one rank for each GPU.
#include <cuda.h>
#include <nccl.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <stdexcept>

#include "commpool/mpi.h"
#include "commpool/pool.h"
#include "examples/support/device.h"
#include "examples/support/job.h"

using commpool::Buffer;
using commpool::MiB;
using commpool::MpiAgreement;
using commpool::Pool;

// All-reduces a block of ones: every element is then the number of ranks.
void SumOnes(const examples::Job& job, const Buffer& block) {
  constexpr unsigned kOne = 0x3f800000;  // 1.0f
  const std::uint64_t count = block.bytes() / sizeof(float);
  examples::Check(cuMemsetD32Async(examples::AddressOf(block.data()), kOne, count, job.stream));
  examples::Check(ncclAllReduce(block.data(), block.data(), count, ncclFloat, ncclSum, job.comm, job.stream));
  for (const float sum : examples::Download(block, job.stream)) {
    if (sum != static_cast<float>(job.ranks)) throw std::runtime_error("a sum is wrong");
  }
}

int main(int argc, char** argv) try {
  examples::Job job(argc, argv);
  // After 30 seconds the other ranks name a rank that does not come to a collective call.
  MpiAgreement agreement(MPI_COMM_WORLD, std::chrono::seconds(30));
  Pool pool = Pool::create({.device = job.device, .symmetric_across = job.comm, .agreement = agreement}).value();
  if (job.rank == 0) std::printf("%s\n", examples::DriverLine().c_str());
  pool.reserve(MiB(64)).or_throw();
  {
    const Buffer first = pool.allocate(MiB(48), job.stream).value();
    pool.reserve(MiB(64)).or_throw();  // agrees over MPI again, and grows by a segment
    const Buffer second = pool.allocate(MiB(48), job.stream).value();
    SumOnes(job, first);
    SumOnes(job, second);
  }
  const commpool::Counter segments = pool.stats().value().reserved_segments;
  const commpool::Counter bytes = pool.stats().value().reserved_bytes;
  pool.close().or_throw();
  if (job.rank == 0) {
    std::printf("%d ranks agreed over MPI: %llu segments of %llu MiB, every sum is right\n", job.ranks,
                static_cast<unsigned long long>(segments.current),
                static_cast<unsigned long long>((bytes.current / segments.current) >> 20));
  }
  return 0;
} catch (const std::exception& error) {
  return examples::JobFailed(error);
}
