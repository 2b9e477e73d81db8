// A program in the manner of nccl-tests: two ranks of one process, memory of ncclMemAlloc, windows, all-reduces. It
// prints what it computed, and says on stderr where memory lay.
#include <cuda.h>
#include <dlfcn.h>
#include <nccl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include "commpool/commpool.h"
#include "tests/interpose/checked.h"

namespace {

constexpr int kRanks = 2;
constexpr size_t kBytes = 8 * kMiB;

struct Rank {
  CUcontext context = nullptr;
  ncclComm_t communicator = nullptr;
  void* buffer = nullptr;
  ncclWindow_t window = nullptr;
};

void AllReduce(std::array<Rank, kRanks>& ranks) {
  std::vector<float> values(kBytes / sizeof(float));
  for (size_t index = 0; index < values.size(); ++index) values[index] = static_cast<float>(index % 1000);
  for (Rank& rank : ranks) {
    CHECK(cuCtxSetCurrent(rank.context));
    CHECK(ncclMemAlloc(&rank.buffer, kBytes));
    CHECK(cuMemcpyHtoD(reinterpret_cast<CUdeviceptr>(rank.buffer), values.data(), kBytes));
  }
  CHECK(ncclGroupStart());
  for (Rank& rank : ranks) {
    CHECK(cuCtxSetCurrent(rank.context));
    CHECK(ncclCommWindowRegister(rank.communicator, rank.buffer, kBytes, &rank.window, NCCL_WIN_COLL_SYMMETRIC));
  }
  CHECK(ncclGroupEnd());
  CHECK(ncclGroupStart());
  for (Rank& rank : ranks) {
    CHECK(cuCtxSetCurrent(rank.context));
    CHECK(ncclAllReduce(rank.buffer, rank.buffer, values.size(), ncclFloat, ncclSum, rank.communicator, nullptr));
  }
  CHECK(ncclGroupEnd());
  double sum = 0;
  for (Rank& rank : ranks) {
    CHECK(cuCtxSetCurrent(rank.context));
    CHECK(cuCtxSynchronize());
    CHECK(cuMemcpyDtoH(values.data(), reinterpret_cast<CUdeviceptr>(rank.buffer), kBytes));
    for (const float value : values) sum += value;
    std::printf("%s ", rank.window == nullptr ? "no window" : "a window");
  }
  std::printf("%.0f\n", sum);
  for (Rank& rank : ranks) {
    CHECK(cuCtxSetCurrent(rank.context));
    std::fprintf(stderr, "buffer %p\n", rank.buffer);
    CHECK(ncclCommWindowDeregister(rank.communicator, rank.window));
    CHECK(ncclMemFree(rank.buffer));
  }
}

// Whole allocations of several sizes at once: each begins a range of its own, as the driver tells.
void Sizes() {
  std::vector<void*> pointers;
  for (const size_t bytes : {size_t{1}, kMiB, 2 * kMiB, 2 * kMiB, 5 * kMiB, 5 * kMiB}) {
    void* pointer = nullptr;
    CHECK(ncclMemAlloc(&pointer, bytes));
    CUdeviceptr base = 0;
    size_t whole = 0;
    CHECK(cuMemGetAddressRange(&base, &whole, reinterpret_cast<CUdeviceptr>(pointer)));
    std::printf("%s ", base == reinterpret_cast<CUdeviceptr>(pointer) && whole >= bytes ? "whole" : "a part");
    pointers.push_back(pointer);
  }
  for (void* pointer : pointers) CHECK(ncclMemFree(pointer));
  std::printf("\n");
}

// Whether the other device may use the memory.
void Peers() {
  void* pointer = nullptr;
  CHECK(ncclMemAlloc(&pointer, kBytes));
  const CUmemLocation other = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1};
  unsigned long long flags = 0;
  CHECK(cuMemGetAccess(&flags, &other, reinterpret_cast<CUdeviceptr>(pointer)));
  std::printf("access %llu\n", flags);
  CHECK(ncclMemFree(pointer));
}

int Freed(char* pointer) { return static_cast<int>(ncclMemFree(pointer)); }

// What nobody may free: what is freed, the inside of a block and its end, an address of another process, and what a
// child has from its parent. Then what was freed serves again, and can be written.
void FreeWrongly() {
  void* pointer = nullptr;
  void* next = nullptr;
  CHECK(ncclMemAlloc(&pointer, kBytes));
  char* const begin = static_cast<char*>(pointer);
  std::printf("inside %d, end %d", Freed(begin + 2 * kMiB), Freed(begin + kBytes));
  const pid_t child = fork();
  if (child == 0) _exit(Freed(begin));
  int status = 0;
  waitpid(child, &status, 0);
  std::printf(", in a child %d, elsewhere %d", WEXITSTATUS(status), Freed(reinterpret_cast<char*>(kBytes)));
  CHECK(Freed(begin));
  std::printf(", again %d", Freed(begin));
  CHECK(ncclMemAlloc(&next, kBytes));
  CHECK(cuMemsetD8(reinterpret_cast<CUdeviceptr>(next), 1, kBytes));
  CHECK(cuCtxSynchronize());
  CHECK(Freed(static_cast<char*>(next)));
  std::printf("\n");
}

// Of a pool that the program has for itself.
void FreeAPools() {
  void* const library = dlopen("libcommpool.so.0", RTLD_NOW | RTLD_NOLOAD);
  const auto pool_of = reinterpret_cast<decltype(&commpool_default_pool)>(dlsym(library, "commpool_default_pool"));
  const auto allocate = reinterpret_cast<decltype(&commpool_pool_allocate)>(dlsym(library, "commpool_pool_allocate"));
  const auto give_back = reinterpret_cast<decltype(&commpool_free)>(dlsym(library, "commpool_free"));
  commpool_pool pool = 0;
  void* block = nullptr;
  CHECK(pool_of(0, &pool));
  CHECK(allocate(pool, kBytes, nullptr, &block));
  std::printf("a pool's %d, inside %d", Freed(static_cast<char*>(block)), Freed(static_cast<char*>(block) + kMiB));
  std::printf(", by commpool %d\n", static_cast<int>(give_back(block)));
}

// As a plugin that looks NCCL's functions up in NCCL: its memory is NCCL's, and goes back to it.
void FreeNccls() {
  const auto allocate =
      reinterpret_cast<decltype(&ncclMemAlloc)>(dlsym(dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD), "ncclMemAlloc"));
  void* pointer = nullptr;
  CHECK(allocate(&pointer, kBytes));
  std::printf("NCCL's %d\n", Freed(static_cast<char*>(pointer)));
}

}  // namespace

int main(int argc, char** argv) {
  ForkWhereAsked(argc, argv);
  std::array<Rank, kRanks> ranks;
  std::array<ncclComm_t, kRanks> communicators = {};
  for (int device = kRanks - 1; device >= 0; --device) ranks[device].context = Begin(device);  // device 0's stays
  for (int index = 1; index < argc; ++index) {
    const std::string word = argv[index];
    if (word == "sizes") Sizes();
    if (word == "peers") Peers();
    if (word == "free-wrongly") FreeWrongly();
    if (word == "free-a-pools") FreeAPools();
    if (word == "free-nccls") FreeNccls();
    if (word == "refused") {
      void* pointer = nullptr;
      std::printf("%d %d\n", ncclMemAlloc(&pointer, size_t{1} << 40), ncclMemFree(nullptr));
    }
    if (word != "all-reduce") continue;
    if (communicators[0] == nullptr) CHECK(ncclCommInitAll(communicators.data(), kRanks, nullptr));
    for (int rank = 0; rank < kRanks; ++rank) ranks[rank].communicator = communicators[rank];
    AllReduce(ranks);
  }
  return 0;
}
