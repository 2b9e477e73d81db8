// A program whose pools have cached the memory of its devices, and that then asks the driver and NCCL for some. It
// prints one word for each call: what it returned.
#include <cuda.h>
#include <nccl.h>

#include <array>
#include <cstdio>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "commpool/buffer.h"
#include "commpool/pool.h"
#include "tests/interpose/checked.h"

namespace {

using commpool::Pool;

constexpr int kDevices = 2;

std::array<CUcontext, kDevices> contexts;

size_t FreeBytes() {
  size_t free = 0;
  size_t total = 0;
  CHECK(cuMemGetInfo(&free, &total));
  return free;
}

Pool MakePool(int device, commpool::Backing backing, commpool::Mode mode = commpool::Mode::kFixed) {
  return Pool::create({.device = device, .backing = backing, .mode = mode}).value();
}

// All that the device has left becomes free memory of the pool.
void Fill(Pool& pool, int device) {
  CHECK(cuCtxSetCurrent(contexts[device]));
  std::vector<commpool::Buffer> blocks;
  while (FreeBytes() >= 8 * kMiB) {
    blocks.push_back(pool.allocate(FreeBytes() > 64 * kMiB ? 32 * kMiB : 8 * kMiB, nullptr).value());
  }
}

void Say(CUresult result) { std::printf("%d ", static_cast<int>(result)); }

CUresult Allocate(size_t bytes) {
  CUdeviceptr pointer = 0;
  const CUresult result = cuMemAlloc(&pointer, bytes);
  if (result == CUDA_SUCCESS) CHECK(cuMemFree(pointer));
  return result;
}

CUresult Create(size_t bytes) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
  CUmemGenericAllocationHandle handle = 0;
  const CUresult result = cuMemCreate(&handle, bytes, &properties, 0);
  if (result == CUDA_SUCCESS) CHECK(cuMemRelease(handle));
  return result;
}

CUresult AllocateAsync(size_t bytes) {
  CUdeviceptr pointer = 0;
  const CUresult result = cuMemAllocAsync(&pointer, bytes, nullptr);
  if (result == CUDA_SUCCESS) CHECK(cuMemFreeAsync(pointer, nullptr));
  CHECK(cuCtxSynchronize());
  return result;
}

// Each kind of call after a fresh filling. Then what no pool can help with, and what fails by another error.
void Calls(commpool::Backing backing, commpool::Mode mode) {
  Pool pool = MakePool(0, backing, mode);
  for (CUresult (*call)(size_t) : {&Allocate, &Create, &AllocateAsync}) {
    Fill(pool, 0);
    Say(call(48 * kMiB));
  }
  Say(Allocate(size_t{1} << 40));
  Say(Allocate(0));
}

// Nothing may be asked while a stream captures, and the capture goes on.
void Capture() {
  Pool pool = MakePool(0, commpool::Backing::kVmm);
  Fill(pool, 0);
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  Say(Create(48 * kMiB));
  Say(cuStreamEndCapture(stream, &graph));
  Say(Create(48 * kMiB));
  CHECK(cuGraphDestroy(graph));
  CHECK(cuStreamDestroy(stream));
}

// Rank 0 waits on its stream for what rank 1 sends only after both have begun another communicator, for which there is
// no memory: whoever waited for the device there would wait for ever.
void Pending(commpool::Backing backing) {
  std::array<ncclComm_t, kDevices> first = {};
  std::array<ncclComm_t, kDevices> second = {};
  CHECK(ncclCommInitAll(first.data(), kDevices, nullptr));
  std::vector<Pool> pools;
  std::array<CUstream, kDevices> streams = {};
  std::array<CUdeviceptr, kDevices> buffers = {};
  for (int device = 0; device < kDevices; ++device) {
    CHECK(cuCtxSetCurrent(contexts[device]));
    CHECK(cuStreamCreate(&streams[device], CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&buffers[device], kMiB));
    pools.push_back(MakePool(device, commpool::Backing::kVmm));
    pools.push_back(MakePool(device, backing));
    Fill(pools[pools.size() - 2], device);
    pools.back().allocate(2 * kMiB, nullptr).value();
  }
  CHECK(cuCtxSetCurrent(contexts[0]));
  CHECK(ncclRecv(reinterpret_cast<void*>(buffers[0]), kMiB, ncclChar, 1, first[0], streams[0]));
  ncclUniqueId id;
  CHECK(ncclGetUniqueId(&id));
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kDevices; ++rank) {
    ranks.emplace_back([&, rank] {
      CHECK(cuCtxSetCurrent(contexts[rank]));
      CHECK(ncclCommInitRank(&second[rank], kDevices, id, rank));
    });
  }
  for (std::thread& rank : ranks) rank.join();
  Say(cuStreamQuery(streams[0]));
  CHECK(cuCtxSetCurrent(contexts[1]));
  CHECK(ncclSend(reinterpret_cast<void*>(buffers[1]), kMiB, ncclChar, 0, first[1], streams[1]));
  for (int device = 0; device < kDevices; ++device) {
    CHECK(cuCtxSetCurrent(contexts[device]));
    CHECK(cuCtxSynchronize());
    CHECK(ncclCommDestroy(first[device]));
    CHECK(ncclCommDestroy(second[device]));
  }
  Say(CUDA_SUCCESS);
}

// Threads fill pools and ask the driver for memory at once, in an order of chance, until so many of them found none.
void Storm(int seed) {
  std::array<std::vector<Pool>, kDevices> pools;
  for (int device = 0; device < kDevices; ++device) {
    pools[device].push_back(MakePool(device, commpool::Backing::kVmm));
    pools[device].push_back(MakePool(device, commpool::Backing::kVmm, commpool::Mode::kExpandable));
    pools[device].push_back(MakePool(device, commpool::Backing::kCuda));
  }
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      std::mt19937 chance(static_cast<unsigned>(seed * 4 + thread));
      const int device = thread % kDevices;
      CHECK(cuCtxSetCurrent(contexts[device]));
      CUstream stream = nullptr;
      CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
      for (int round = 0; round < 600; ++round) {
        const size_t bytes = (8 + chance() % 120) * kMiB;
        Pool& pool = pools[device][chance() % 3];
        if (const commpool::Result<commpool::Buffer> block = pool.allocate(bytes, stream); block.ok()) {
          CHECK(cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(block->data()), 1, 4096, stream));
        }
        const CUresult result = chance() % 2 == 0 ? Allocate(bytes + 64 * kMiB) : AllocateAsync(bytes + 64 * kMiB);
        CHECK(result == CUDA_ERROR_OUT_OF_MEMORY ? CUDA_SUCCESS : result);
      }
      CHECK(cuStreamSynchronize(stream));
      CHECK(cuStreamDestroy(stream));
    });
  }
  for (std::thread& thread : threads) thread.join();
  Say(CUDA_SUCCESS);
}

}  // namespace

int main(int argc, char** argv) {
  ForkWhereAsked(argc, argv);
  for (int device = kDevices - 1; device >= 0; --device) contexts[device] = Begin(device);  // device 0's stays
  for (int index = 1; index < argc; ++index) {
    const std::string word = argv[index];
    if (word == "fixed") Calls(commpool::Backing::kVmm, commpool::Mode::kFixed);
    if (word == "expandable") Calls(commpool::Backing::kVmm, commpool::Mode::kExpandable);
    if (word == "cuda") Calls(commpool::Backing::kCuda, commpool::Mode::kFixed);
    if (word == "capture") Capture();
    if (word == "pending") Pending(commpool::Backing::kVmm);
    if (word == "pending-cuda") Pending(commpool::Backing::kCuda);
    if (word == "storm") Storm(index);
  }
  return 0;
}
