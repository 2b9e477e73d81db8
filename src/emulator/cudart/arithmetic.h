// What PyTorch's elementwise kernels compute, element by element, as the device rounds it. Values: any thread.
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

// Computes `count` elements. `b` is null where the formula has none.
using Elements = std::function<void(void* result, const void* a, const void* b, size_t count)>;

// Of an element type by the name that C++ has for it; `scalars` are s and t as the functor holds them, side by side.
// An empty function where the type is not known, or the formula is not computed in it.
Elements ElementsOf(Formula formula, std::string_view type, const void* scalars);

// Conversions between types; empty for pairs that are not known.
Elements ConversionOf(std::string_view from, std::string_view to);

// The sum of the elements at so many bytes from the first, times a factor. Floats are added as doubles and rounded
// once: the last bits differ from those of any order in which a device adds.
using Summation = void (*)(void* result, const char* first, const std::vector<size_t>& places, double factor);
// Null for a type that is not known.
Summation SummationOf(std::string_view type);

// 0 for an unknown type.
size_t BytesOf(std::string_view type);

// In which formulas of the type are computed, as scalars are held; 0 where there are none.
size_t ScalarBytesOf(std::string_view type);

}  // namespace commpool::internal::emulated_cudart

#endif  // COMMPOOL_SRC_EMULATOR_CUDART_ARITHMETIC_H_
