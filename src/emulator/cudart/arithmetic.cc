#include "src/emulator/cudart/arithmetic.h"

#include <cstdint>
#include <type_traits>

#include "src/emulator/short_floats.h"

namespace commpool::internal::emulated_cudart {

namespace {

// Short floats are computed as floats. Whole numbers wrap around, as unsigned ones do.
float Load(Bfloat16 value) { return value.ToFloat(); }
float Load(Half value) { return value.ToFloat(); }
float Load(float value) { return value; }
double Load(double value) { return value; }
uint32_t Load(int32_t value) { return static_cast<uint32_t>(value); }
uint64_t Load(int64_t value) { return static_cast<uint64_t>(value); }

template <typename Element>
using Computed = decltype(Load(Element{}));

template <typename Element>
Element Store(Computed<Element> value) {
  if constexpr (std::is_arithmetic_v<Element>) {
    return static_cast<Element>(value);
  } else {
    return Element::FromFloat(value);
  }
}

template <typename Element, typename Compute>
Elements EachOf(Compute compute) {
  return [compute](void* result, const void* a, const void* b, size_t count) {
    auto* const to = static_cast<Element*>(result);
    const auto* const left = static_cast<const Element*>(a);
    const auto* const right = static_cast<const Element*>(b == nullptr ? a : b);
    for (size_t index = 0; index < count; ++index) {
      to[index] = Store<Element>(compute(Load(left[index]), Load(right[index])));
    }
  };
}

template <typename Element>
Elements Of(Formula formula, const void* held) {
  using Number = Computed<Element>;
  Number s = {};
  Number t = {};
  if (formula == Formula::kAddScaled || formula == Formula::kAddConstant || formula == Formula::kScale) {
    std::memcpy(&s, held, sizeof(s));
  }
  if (formula == Formula::kAddConstant) std::memcpy(&t, static_cast<const char*>(held) + sizeof(s), sizeof(t));
  switch (formula) {
    case Formula::kAddScaled:
      return EachOf<Element>([s](Number a, Number b) { return a + s * b; });
    case Formula::kAddConstant:
      return EachOf<Element>([s, t](Number a, Number) { return a + s * t; });
    case Formula::kMultiply:
      return EachOf<Element>([](Number a, Number b) { return a * b; });
    case Formula::kScale:
      return EachOf<Element>([s](Number a, Number) { return a * s; });
    case Formula::kDivide:
      if constexpr (std::is_floating_point_v<Number>) return EachOf<Element>([](Number a, Number b) { return a / b; });
  }
  return {};
}

template <typename From, typename To>
Elements Conversion() {
  return [](void* result, const void* a, const void*, size_t count) {
    for (size_t index = 0; index < count; ++index) {
      static_cast<To*>(result)[index] = Store<To>(Load(static_cast<const From*>(a)[index]));
    }
  };
}

template <typename Element>
void Sum(void* result, const char* first, const std::vector<size_t>& places, double factor) {
  using Number = Computed<Element>;
  std::conditional_t<std::is_floating_point_v<Number>, double, Number> total = 0;
  for (const size_t place : places) {
    Element element;
    std::memcpy(&element, first + place, sizeof(element));
    total += Load(element);
  }
  if constexpr (std::is_floating_point_v<Number>) total *= factor;
  *static_cast<Element*>(result) = Store<Element>(static_cast<Number>(total));
}

struct KnownType {
  std::string_view name;
  size_t bytes;
  size_t scalar_bytes;
  Elements (*elements)(Formula, const void*);
  Summation summation;
};

template <typename Element>
constexpr KnownType Computing(std::string_view name) {
  return {name, sizeof(Element), sizeof(Computed<Element>), Of<Element>, Sum<Element>};
}

constexpr KnownType kTypes[] = {
    Computing<float>("float"),
    Computing<double>("double"),
    Computing<Half>("c10::Half"),
    Computing<Bfloat16>("c10::BFloat16"),
    Computing<int32_t>("int"),
    Computing<int64_t>("long"),
    // The emulator only fills these types.
    {"bool", 1, 0, nullptr, nullptr},
    {"unsigned char", 1, 0, nullptr, nullptr},
    {"signed char", 1, 0, nullptr, nullptr},
    {"short", 2, 0, nullptr, nullptr},
    {"unsigned short", 2, 0, nullptr, nullptr},
    {"unsigned int", 4, 0, nullptr, nullptr},
    {"unsigned long", 8, 0, nullptr, nullptr},
};

const KnownType* Find(std::string_view name) {
  for (const KnownType& known : kTypes) {
    if (known.name == name) return &known;
  }
  return nullptr;
}

}  // namespace

Elements ElementsOf(Formula formula, std::string_view type, const void* scalars) {
  const KnownType* const known = Find(type);
  return known == nullptr || known->elements == nullptr ? Elements() : known->elements(formula, scalars);
}

Elements ConversionOf(std::string_view from, std::string_view to) {
  if (from == "float" && to == "c10::BFloat16") return Conversion<float, Bfloat16>();
  if (from == "float" && to == "c10::Half") return Conversion<float, Half>();
  if (from == "c10::BFloat16" && to == "float") return Conversion<Bfloat16, float>();
  if (from == "c10::Half" && to == "float") return Conversion<Half, float>();
  return {};
}

Summation SummationOf(std::string_view type) {
  const KnownType* const known = Find(type);
  return known == nullptr ? nullptr : known->summation;
}

size_t BytesOf(std::string_view type) {
  const KnownType* const known = Find(type);
  return known == nullptr ? 0 : known->bytes;
}

size_t ScalarBytesOf(std::string_view type) {
  const KnownType* const known = Find(type);
  return known == nullptr ? 0 : known->scalar_bytes;
}

}  // namespace commpool::internal::emulated_cudart
