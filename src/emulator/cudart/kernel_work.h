// What the emulator does instead of a kernel.
#ifndef COMMPOOL_SRC_EMULATOR_CUDART_KERNEL_WORK_H_
#define COMMPOOL_SRC_EMULATOR_CUDART_KERNEL_WORK_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/emulator/extension.h"

namespace commpool::internal::emulated_cudart {

// One launch: the ranges that it touches, and the function that works on host pointers to them.
struct KernelWork {
  std::string name;
  std::vector<commpoolEmulatorRange> reads;
  std::vector<commpoolEmulatorRange> writes;
  double duration_us = 0;
  std::function<void(const void* const* reads, void* const* writes)> run;
};

// Returns the time for so many bytes, the same as for the driver's copies.
double KernelDuration(size_t bytes);

// Returns the range of `bytes` bytes from a tensor's first element.
commpoolEmulatorRange RangeOf(const void* tensor, size_t bytes);

// Removes the text before `end`, and `end`, from `text`, and returns it. Returns nothing if `text` has no `end`.
std::optional<std::string_view> TakeUntil(std::string_view* text, std::string_view end);

// Removes `begin` from the start of `text`. Returns false if `text` begins with something else.
bool Skip(std::string_view* text, std::string_view begin);

}  // namespace commpool::internal::emulated_cudart

#endif  // COMMPOOL_SRC_EMULATOR_CUDART_KERNEL_WORK_H_
