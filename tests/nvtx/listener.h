// A tool that listens to NVTX, as NVTX_INJECTION64_PATH names it: what it heard, and which calls broke a rule.
// COMMPOOL_TEST_LISTENER=ranges makes it one that takes no memory, COMMPOOL_TEST_LISTENER=memory one that has no
// domains: compute-sanitizer of CUDA 13.0 is such a tool.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace commpool::internal::testing {

struct Heard {
  struct Heap {
    std::string pool;
    uint64_t address = 0;
    uint64_t bytes = 0;
  };
  struct Region {
    uint64_t bytes = 0;
    const Heap* heap = nullptr;
    std::string name;
  };

  std::mutex mutex;
  std::set<const std::string*> domains;
  std::map<uint64_t, const Heap*> heaps;                       // by address
  std::map<uint64_t, Region> regions;                          // by address
  std::map<uint64_t, std::string> open;                        // ranges with a number
  std::map<std::thread::id, std::vector<std::string>> nested;  // ranges without a number, by thread
  std::vector<std::string> lines;  // of ranges: "push TEXT", "pop TEXT", "start TEXT", "end TEXT"
  std::vector<std::string> wrong;
  int refused_heaps = 0;  // that the tool refuses next
  uint64_t numbers = 0;
};

// What the library that the environment names has heard.
using HeardFunction = Heard*();
inline constexpr const char* kHeard = "CommpoolTestHeard";

}  // namespace commpool::internal::testing
