// The random numbers of one operation: those of the CUDA generator's seed and offset, also where a graph repeats it.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <optional>

#include "src/emulator/torch/operand.h"

namespace commpool::internal::emulated_torch {

// Says whether an operation draws: it takes a generator, or is known to use the default one.
bool Draws(const c10::OperatorHandle& operation);

// CPU generators: by a seed of their own, or for what the CUDA generator draws at its seed and offset.
at::Generator GeneratorOfSeed(uint64_t seed);
at::Generator GeneratorAt(uint64_t seed, uint64_t offset);

// A value, taken before the operation advances the generator.
class RandomState {
 public:
  // REQUIRES: Draws(operation).
  RandomState(const c10::Stack& arguments, c10::DeviceIndex device);

  // A captured operation reads its seed and offset from the graph's memory.
  void AppendRanges(Ranges* reads);

  // A CPU generator for one run.
  at::Generator On(const void* const* reads) const;

 private:
  bool captured_ = false;
  uint64_t seed_ = 0;    // captured: its address
  uint64_t offset_ = 0;  // captured: the address of what the replay adds
  uint64_t offset_in_graph_ = 0;
  size_t first_ = 0;  // its ranges
};

}  // namespace commpool::internal::emulated_torch
