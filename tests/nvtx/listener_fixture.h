// A pool test with a tool that listens. It fails where a call breaks a rule of the tool, or leaves something in it.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "src/library/pool/blocks/block_store.h"
#include "tests/nvtx/listener.h"
#include "tests/pool/pool_fixture.h"

namespace commpool::internal::testing {

// What the tool has heard. Nothing of it is left at the end of a test.
class Tool {
 protected:
  Tool() { heard().lines.clear(); }
  ~Tool() {
    EXPECT_EQ(heard().wrong, std::vector<std::string>());
    EXPECT_TRUE(heard().regions.empty());
    EXPECT_TRUE(heard().heaps.empty());
    EXPECT_TRUE(heard().domains.empty());
    EXPECT_TRUE(heard().open.empty());
    for (const auto& [thread, ranges] : heard().nested) EXPECT_EQ(ranges, std::vector<std::string>());
  }

  static Heard& heard() {
    static Heard* const heard = [] {
      void* const library = dlopen(std::getenv("NVTX_INJECTION64_PATH"), RTLD_NOW);
      void* const function = library == nullptr ? nullptr : dlsym(library, kHeard);
      if (function == nullptr) std::abort();
      return reinterpret_cast<HeardFunction*>(function)();
    }();
    return *heard;
  }
};

// The tool looks after the pools are gone: bases end from the last to the first.
class ListenerTest : protected Tool, public PoolTest {
 protected:
  // The live blocks of a pool, as its listing and the tool have them: bytes by address.
  using Bytes = std::map<uint64_t, uint64_t>;
  // A pool of the memory that tools take.
  PoolHandle Make(const char* name = "gradients") {
    PoolConfiguration configuration = Configured(name);
    configuration.backing.kind = BackingKind::kCuda;
    return Create(configuration);
  }
  CUdeviceptr Allocate(PoolHandle pool, uint64_t bytes, CUstream stream = nullptr) {
    return runtime().AllocateFrom(pool, bytes, stream).value();
  }
  void Free(CUdeviceptr address) { EXPECT_TRUE(runtime().Free(address).ok()); }
  Bytes Listed(PoolHandle pool) {
    Bytes listed;
    for (const commpool_block& block : ListBlocks(Get(pool).basis(), Get(pool).blocks())) {
      if (block.state == COMMPOOL_BLOCK_LIVE) {
        listed[reinterpret_cast<uint64_t>(block.pointer)] = block.requested_bytes;
      }
    }
    return listed;
  }
  static Bytes Regions() {
    Bytes regions;
    for (const auto& [address, region] : heard().regions) regions[address] = region.bytes;
    return regions;
  }
};

}  // namespace commpool::internal::testing
