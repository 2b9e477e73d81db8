#include "src/emulator/nccl/reduction.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "src/emulator/short_floats.h"

namespace commpool::internal::emulated_nccl {

namespace {

template <typename T>
inline constexpr bool kIsShortFloat = requires(T value) {
  value.ToFloat();
};

template <typename T>
auto Widen(T value) {
  if constexpr (kIsShortFloat<T>) {
    return value.ToFloat();
  } else {
    return value;
  }
}

template <typename T, typename Wide>
T Narrow(Wide value) {
  if constexpr (kIsShortFloat<T>) {
    return T::FromFloat(value);
  } else {
    return static_cast<T>(value);
  }
}

// Sums of signed whole numbers wrap around, as on a device.
template <typename T>
T Wrapping(T a, T b, bool multiply) {
  using Unsigned = std::make_unsigned_t<T>;
  const auto left = static_cast<uint64_t>(static_cast<Unsigned>(a));
  const auto right = static_cast<uint64_t>(static_cast<Unsigned>(b));
  return static_cast<T>(static_cast<Unsigned>(multiply ? left * right : left + right));
}

struct Sum {
  template <typename T>
  static T Apply(T a, T b) {
    if constexpr (std::is_integral_v<T>)
      return Wrapping(a, b, false);
    else
      return a + b;
  }
};
struct Product {
  template <typename T>
  static T Apply(T a, T b) {
    if constexpr (std::is_integral_v<T>)
      return Wrapping(a, b, true);
    else
      return a * b;
  }
};
struct Maximum {
  template <typename T>
  static T Apply(T a, T b) {
    return a < b ? b : a;
  }
};
struct Minimum {
  template <typename T>
  static T Apply(T a, T b) {
    return b < a ? b : a;
  }
};

template <typename T, typename Operation>
void ReduceAll(const void* own, const void* received, void* result, size_t count) {
  const T* left = static_cast<const T*>(own);
  const T* right = static_cast<const T*>(received);
  T* out = static_cast<T*>(result);
  for (size_t index = 0; index < count; ++index) {
    out[index] = Narrow<T>(Operation::Apply(Widen(left[index]), Widen(right[index])));
  }
}

template <typename T>
void ReduceType(ncclRedOp_t operation, const void* own, const void* received, void* result, size_t count) {
  switch (operation) {
    case ncclProd:
      return ReduceAll<T, Product>(own, received, result, count);
    case ncclMax:
      return ReduceAll<T, Maximum>(own, received, result, count);
    case ncclMin:
      return ReduceAll<T, Minimum>(own, received, result, count);
    default:
      return ReduceAll<T, Sum>(own, received, result, count);
  }
}

template <typename T>
void DivideType(const void* values, int ranks, void* result, size_t count) {
  const T* in = static_cast<const T*>(values);
  T* out = static_cast<T*>(result);
  for (size_t index = 0; index < count; ++index) {
    using Wide = decltype(Widen(in[index]));
    if constexpr (std::is_integral_v<Wide>) {
      out[index] = static_cast<T>(in[index] / static_cast<int64_t>(ranks));
    } else {
      out[index] = Narrow<T>(Widen(in[index]) * (Wide{1} / static_cast<Wide>(ranks)));
    }
  }
}

template <typename T>
void ScaleType(const void* values, const void* scalar, void* result, size_t count) {
  const T* in = static_cast<const T*>(values);
  T* out = static_cast<T*>(result);
  T factor;
  std::memcpy(&factor, scalar, sizeof factor);
  for (size_t index = 0; index < count; ++index) {
    out[index] = Narrow<T>(Product::Apply(Widen(in[index]), Widen(factor)));
  }
}

// Calls `visit` with a value of the C++ type for `type`.
template <typename Visitor>
void VisitType(ncclDataType_t type, const Visitor& visit) {
  switch (type) {
    case ncclInt8:
      return visit(int8_t{});
    case ncclUint8:
      return visit(uint8_t{});
    case ncclInt32:
      return visit(int32_t{});
    case ncclUint32:
      return visit(uint32_t{});
    case ncclInt64:
      return visit(int64_t{});
    case ncclUint64:
      return visit(uint64_t{});
    case ncclFloat16:
      return visit(Half{});
    case ncclFloat32:
      return visit(float{});
    case ncclFloat64:
      return visit(double{});
    case ncclBfloat16:
      return visit(Bfloat16{});
    case ncclFloat8e4m3:
      return visit(Float8E4M3{});
    case ncclFloat8e5m2:
      return visit(Float8E5M2{});
    default:
      std::abort();
  }
}

}  // namespace

size_t ElementBytes(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
    default:
      return 0;
  }
}

std::optional<uint64_t> CheckedMultiply(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

bool IsFloat(ncclDataType_t type) { return type >= ncclFloat16 && type <= ncclFloat8e5m2; }

void Reduce(ncclDataType_t type, ncclRedOp_t operation, const void* own, const void* received, void* result,
            size_t count) {
  VisitType(type, [&](auto element) { ReduceType<decltype(element)>(operation, own, received, result, count); });
}

void Divide(ncclDataType_t type, const void* values, int ranks, void* result, size_t count) {
  VisitType(type, [&](auto element) { DivideType<decltype(element)>(values, ranks, result, count); });
}

void Scale(ncclDataType_t type, const void* values, const void* scalar, void* result, size_t count) {
  VisitType(type, [&](auto element) { ScaleType<decltype(element)>(values, scalar, result, count); });
}

bool Reduction::PreparesOwn() const { return scalar != nullptr || (operation == ncclAvg && IsFloat(type)); }

void Reduction::PrepareOwn(const void* values, int ranks, void* result, size_t count) const {
  if (scalar != nullptr) {
    Scale(type, values, scalar, result, count);
  } else {
    Divide(type, values, ranks, result, count);
  }
}

}  // namespace commpool::internal::emulated_nccl
