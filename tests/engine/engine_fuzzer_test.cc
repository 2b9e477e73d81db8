// The fuzzer's target without a fuzzer: pseudo-random inputs of several lengths, and a small corpus.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace commpool::internal::engine {
namespace {

using Input = std::vector<uint8_t>;

// Calls by their number (fuzzed_engine.h); those of one engine alone are 16 times their number, plus 15.
enum : uint8_t { kAllocate = 0, kFree = 3, kRecord = 5, kAttach = 6, kPass = 7, kIdle = 8, kWrong = 9, kForget = 10 };
constexpr uint8_t Own(uint8_t number) { return static_cast<uint8_t>(16 * number + 15); }

const std::vector<Input>& Corpus() {
  static const std::vector<Input> corpus = {
      {},
      {0},
      {1, 7},
      // A caching engine grows, serves, is used by another stream, frees, fences, serves the other.
      {0,         0,  kAllocate, 10, 9, 0,       1, 0,     kAllocate, 10,        9,  0, 1, kRecord, 0,     1, kFree, 0,
       kAllocate, 10, 9,         1,  2, kAttach, 0, kPass, 0,         kAllocate, 10, 9, 1, 2,       kIdle, 1, Own(2)},
      // A size that overflows, wrong addresses, a stream that is forgotten while its block is live.
      {0, 3, kAllocate, 0xff, 0,       0, 0,       kAllocate, 10, 9,     0, 1,       0, kAllocate, 10,  9,
       0, 1, kWrong,    3,    kForget, 0, kRecord, 0,         0,  kFree, 0, kAttach, 0, kWrong,    0xff},
      // A graph's block, freed within it, and the graph's end.
      {0, 0,     kAllocate, 10,        9,  0, 7, 0, kAllocate, 10, 9,         0,  7, kRecord, 0,
       1, kFree, 0,         kAllocate, 10, 9, 1, 7, Own(0),    0,  kAllocate, 10, 9, 0,       1},
      // An expandable engine plans, claims, settles, serves, frees, waits, and gives its pages back.
      {1,  7, kAllocate, 17,    20, 0,     1, 0,      0,  Own(2), Own(2), kAllocate, 17,
       20, 0, 1,         kFree, 0,  kIdle, 1, Own(2), 17, 255,    Own(2), Own(14)},
      // A size near the end of all addresses, before and after there is memory.
      {1, 7, kAllocate, 0xff, 0x7f, 0, 1, kAllocate, 17, 20, 0, 1, 0, 0, Own(2), Own(2), kAllocate, 0xff, 0xff, 0, 1},
      // Symmetric engines: frees that wait for the other ranks, and frees in lockstep with a late fence.
      {2, 0, kAllocate, 10, 9,      0,       0, kAllocate, 10,    9, 0,     kRecord,
       0, 1, kFree,     0,  Own(2), kAttach, 0, Own(2),    kIdle, 1, Own(0)},
      {3, 0,         kAllocate, 10, 9, 0,       0, kAllocate, 10, 9,     0, kRecord, 0, 1,     kFree,
       0, kAllocate, 10,        9,  1, kAttach, 0, kPass,     0,  kFree, 0, kIdle,   1, Own(0)},
  };
  return corpus;
}

TEST(EngineFuzzer, FindsNothingInItsCorpus) {
  for (const Input& input : Corpus()) EXPECT_EQ(LLVMFuzzerTestOneInput(input.data(), input.size()), 0);
}

TEST(EngineFuzzer, FindsNothingInThePrefixesOfItsCorpus) {
  for (const Input& input : Corpus()) {
    for (size_t size = 0; size < input.size(); ++size) LLVMFuzzerTestOneInput(input.data(), size);
  }
}

class RandomInputs : public ::testing::TestWithParam<size_t> {};

TEST_P(RandomInputs, BreakNoEngine) {
  std::mt19937_64 random(GetParam());
  const size_t inputs = 16 + 4096 / (1 + GetParam());
  for (size_t number = 0; number < inputs; ++number) {
    Input input(GetParam());
    for (uint8_t& byte : input) byte = static_cast<uint8_t>(random());
    if (!input.empty()) input[0] = static_cast<uint8_t>(number);  // every engine in turn
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
}

INSTANTIATE_TEST_SUITE_P(Lengths, RandomInputs, ::testing::Values(0, 1, 2, 3, 10, 50, 200, 800, 2500));

}  // namespace
}  // namespace commpool::internal::engine
