// What PyTorch's elementwise kernels compute for each element, rounded as the device rounds. They are values: any
// thread.
#ifndef COMMPOOL_SRC_EMULATOR_CUDART_ARITHMETIC_H_
#define COMMPOOL_SRC_EMULATOR_CUDART_ARITHMETIC_H_

#include <cstddef>
#include <cstring>
#include <functional>
#include <string_view>
#include <vector>

namespace commpool::internal::emulated_cudart {

enum class Formula {
  kAddScaled,    // a + s * b
  kAddConstant,  // a + s * t
  kMultiply,     // a * b
  kDivide,       // a / b
  kScale,        // a * s
};

// Computes `count` elements. `b` is null if the formula does not use it.
using Elements = std::function<void(void* result, const void* a, const void* b, size_t count)>;

// Returns the function for an element type, by its name in C++. `scalars` points to s and t, side by side, as the
// functor holds them. The function is empty if the type is unknown or does not support the formula.
Elements ElementsOf(Formula formula, std::string_view type, const void* scalars);

// Returns the conversion from one type to another; empty if the pair is unknown.
Elements ConversionOf(std::string_view from, std::string_view to);

// Sums the elements at these byte offsets from the first, and multiplies by a factor. It adds floats as doubles and
// rounds once, so the last bits differ from those of a device, in whatever order that adds.
using Summation = void (*)(void* result, const char* first, const std::vector<size_t>& places, double factor);
// Returns null for an unknown type.
Summation SummationOf(std::string_view type);

// Returns 0 for an unknown type.
size_t BytesOf(std::string_view type);

// Returns the size of the scalars in the type's formulas; 0 if it has no formulas.
size_t ScalarBytesOf(std::string_view type);

}  // namespace commpool::internal::emulated_cudart

#endif  // COMMPOOL_SRC_EMULATOR_CUDART_ARITHMETIC_H_
