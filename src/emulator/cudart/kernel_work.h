// What the emulator does in place of a kernel.
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

// One launch: what it touches, and what it does with host pointers to that.
struct KernelWork {
  std::string name;
  std::vector<commpoolEmulatorRange> reads;
  std::vector<commpoolEmulatorRange> writes;
  double duration_us = 0;
  std::function<void(const void* const* reads, void* const* writes)> run;
};

// Of so many bytes: as the driver's copies take.
double KernelDuration(size_t bytes);

// `bytes` from a tensor's first element on.
commpoolEmulatorRange RangeOf(const void* tensor, size_t bytes);

// Takes what stands before `end` from the text, and `end` as well; nothing where there is no `end`.
std::optional<std::string_view> TakeUntil(std::string_view* text, std::string_view end);

// Takes `begin` from the text; false where it begins otherwise.
bool Skip(std::string_view* text, std::string_view begin);

}  // namespace commpool::internal::emulated_cudart

#endif  // COMMPOOL_SRC_EMULATOR_CUDART_KERNEL_WORK_H_
