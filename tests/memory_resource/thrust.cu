// Thrust's temporary memory from a pool, by ThrustScratch and by RMM's policy: sorted right, and nothing is left.
#include <thrust/device_ptr.h>
#include <thrust/execution_policy.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>

#include <cstdio>
#include <cstdlib>
#include <rmm/exec_policy.hpp>

#include "commpool/mr.h"

namespace {

void Must(bool holds, const char* what) {
  if (holds) return;
  std::printf("%s does not hold\n", what);
  std::exit(1);
}

template <typename Policy>
void Sort(const Policy& policy, const commpool::PoolResource& resource, cudaStream_t stream, const char* name) {
  constexpr int kCount = 1 << 20;
  const std::size_t bytes = kCount * sizeof(int);
  auto* const numbers = static_cast<int*>(resource.allocate(stream, bytes));
  thrust::device_ptr<int> begin(numbers);
  thrust::sequence(policy, begin, begin + kCount, kCount, -1);
  thrust::sort(policy, begin, begin + kCount);
  int ends[2] = {};
  cudaMemcpyAsync(&ends[0], numbers, sizeof(int), cudaMemcpyDeviceToHost, stream);
  cudaMemcpyAsync(&ends[1], numbers + kCount - 1, sizeof(int), cudaMemcpyDeviceToHost, stream);
  Must(cudaStreamSynchronize(stream) == cudaSuccess, "synchronising");
  Must(ends[0] == 1 && ends[1] == kCount, "the order");
  resource.deallocate(stream, numbers, bytes);
  std::printf("thrust, %s ok\n", name);
}

}  // namespace

int main() {
  commpool::Pool pool = commpool::Pool::create({}).value();
  const commpool::PoolResource resource(pool);
  cudaStream_t stream = nullptr;
  Must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess, "a stream");
  commpool::ThrustScratch scratch(resource, stream);
  Sort(thrust::cuda::par(scratch).on(stream), resource, stream, "ThrustScratch");
  Must(pool.stats().value().allocated_blocks.total > 1, "temporary memory of the pool");
  Sort(rmm::exec_policy(stream, resource), resource, stream, "rmm::exec_policy");
  Must(pool.stats().value().allocated_blocks.current == 0, "an empty pool");
  return 0;
}
