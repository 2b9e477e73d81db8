// An allocation and its free, nanoseconds, on one stream: a commpool pool through commpool/mr.h, and RMM's own pool and
// asynchronous resource. Rounds go A B C, C B A; a JSON object a line: {"bytes": ..., "NAME": [ns of each round]}.
// usage: pairs ROUNDS PAIRS
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <string>
#include <utility>
#include <vector>

#include "commpool/mr.h"

namespace {

// The resource itself, not type-erased: this is what a library calls once it has one.
template <typename Resource>
double Pairs(Resource& resource, cudaStream_t stream, std::size_t bytes, int pairs) {
  const auto begin = std::chrono::steady_clock::now();
  for (int pair = 0; pair < pairs; ++pair) {
    void* const pointer = resource.allocate(stream, bytes, 256);
    resource.deallocate(stream, pointer, bytes, 256);
  }
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
  return took.count() / pairs;
}

}  // namespace

int main(int count, char** words) {
  const int rounds = count > 1 ? std::atoi(words[1]) : 30;
  const int pairs = count > 2 ? std::atoi(words[2]) : 2000;
  commpool::Pool pool = commpool::Pool::create({}).value();
  pool.reserve(commpool::GiB(1)).or_throw();
  cudaStream_t stream = nullptr;
  if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess) return 1;
  commpool::PoolResource ours(pool);
  rmm::mr::pool_memory_resource theirs(rmm::mr::cuda_memory_resource{}, std::size_t{1} << 30);
  rmm::mr::cuda_async_memory_resource driver;
  for (const std::size_t bytes :
       {std::size_t{512}, std::size_t{64} << 10, std::size_t{1} << 20, std::size_t{64} << 20}) {
    std::vector<std::pair<std::string, std::function<double()>>> contenders = {
        {"commpool", [&] { return Pairs(ours, stream, bytes, pairs); }},
        {"RMM's pool", [&] { return Pairs(theirs, stream, bytes, pairs); }},
        {"cudaMallocAsync", [&] { return Pairs(driver, stream, bytes, pairs); }}};
    std::vector<std::vector<double>> times(contenders.size());
    for (int round = -2; round < rounds; ++round) {  // two to warm up
      for (std::size_t turn = 0; turn < contenders.size(); ++turn) {
        const std::size_t index = round % 2 == 0 ? turn : contenders.size() - 1 - turn;
        const double took = contenders[index].second();
        if (round >= 0) times[index].push_back(took);
      }
    }
    std::printf("{\"bytes\": %zu", bytes);
    for (std::size_t index = 0; index < contenders.size(); ++index) {
      std::printf(", \"%s\": [", contenders[index].first.c_str());
      for (std::size_t round = 0; round < times[index].size(); ++round) {
        std::printf("%s%.1f", round == 0 ? "" : ", ", times[index][round]);
      }
      std::printf("]");
    }
    std::printf("}\n");
  }
  return 0;
}
