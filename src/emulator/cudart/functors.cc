#include "src/emulator/cudart/functors.h"

#include <cstring>
#include <vector>

#include "src/emulator/cudart/kernel_work.h"

namespace commpool::internal::emulated_cudart {

namespace {

// FillFunctor<T> holds the value.
std::optional<Functor> Filling(std::string_view name, const char* held) {
  if (!Skip(&name, "at::native::FillFunctor<")) return std::nullopt;
  name.remove_suffix(1);
  const size_t bytes = BytesOf(name);
  if (bytes == 0) return std::nullopt;
  const std::vector<char> value(held, held + bytes);
  return Functor{name, name, 0, [value](void* result, const void*, const void*, size_t count) {
                   auto* to = static_cast<char*>(result);
                   for (size_t index = 0; index < count; ++index, to += value.size()) {
                     std::memcpy(to, value.data(), value.size());
                   }
                 }};
}

// FUNCTOR<T>
std::optional<Functor> Addition(std::string_view name, const char* held) {
  const bool of_two = Skip(&name, "at::native::CUDAFunctor_add<");
  if (!of_two && !Skip(&name, "at::native::CUDAFunctorOnSelf_add<")) return std::nullopt;
  name.remove_suffix(1);
  const Formula formula = of_two ? Formula::kAddScaled : Formula::kAddConstant;
  return Functor{name, name, of_two ? size_t{2} : size_t{1}, ElementsOf(formula, name, held)};
}

// FUNCTOR<T, T, T, at::native::binary_internal::OPERATION<U> >. If one operand is a scalar, it follows the operation.
// The operation has no members, so the scalar is aligned to its own size.
std::optional<Functor> Product(std::string_view name, const char* held) {
  const bool of_two = Skip(&name, "at::native::BinaryFunctor<");
  const bool first = !of_two && Skip(&name, "at::native::AUnaryFunctor<");
  if (!of_two && !first && !Skip(&name, "at::native::BUnaryFunctor<")) return std::nullopt;
  const std::optional<std::string_view> type = TakeUntil(&name, ", ");
  if (!type || TakeUntil(&name, ", ") != type || TakeUntil(&name, ", ") != type) return std::nullopt;
  const bool multiplies = name.starts_with("at::native::binary_internal::MulFunctor<");
  const bool divides = name.starts_with("at::native::binary_internal::DivFunctor<");
  if (of_two && (multiplies || divides)) {
    return Functor{*type, *type, 2, ElementsOf(multiplies ? Formula::kMultiply : Formula::kDivide, *type, nullptr)};
  }
  if (!multiplies) return std::nullopt;
  return Functor{*type, *type, 1, ElementsOf(Formula::kScale, *type, held + ScalarBytesOf(*type))};
}

// at::native::converting_copy_kernel_cuda<FROM, TO>(...)
std::optional<Functor> Conversion(std::string_view name) {
  if (!Skip(&name, "at::native::converting_copy_kernel_cuda<")) return std::nullopt;
  const std::optional<std::string_view> from = TakeUntil(&name, ", ");
  const std::optional<std::string_view> to = from ? TakeUntil(&name, ">(") : std::nullopt;
  if (!to) return std::nullopt;
  return Functor{*from, *to, 1, ConversionOf(*from, *to)};
}

// at::native::direct_copy_kernel_cuda(...)...::{lambda(T)#1}
std::optional<Functor> Copy(std::string_view name) {
  constexpr std::string_view kLambda = "{lambda(";
  constexpr std::string_view kEnd = ")#1}";
  const size_t begin = name.rfind(kLambda);
  if (!Skip(&name, "at::native::direct_copy_kernel_cuda(") || begin == std::string_view::npos ||
      !name.ends_with(kEnd)) {
    return std::nullopt;
  }
  std::string_view type = name.substr(name.rfind(kLambda) + kLambda.size());
  type.remove_suffix(kEnd.size());
  const size_t bytes = BytesOf(type);
  if (bytes == 0) return std::nullopt;
  return Functor{type, type, 1, [bytes](void* result, const void* a, const void*, size_t count) {
                   std::memmove(result, a, count * bytes);
                 }};
}

}  // namespace

std::optional<Functor> FunctorOf(std::string_view name, const void* memory) {
  const auto* const held = static_cast<const char*>(memory);
  if (std::optional<Functor> filling = Filling(name, held)) return filling;
  if (std::optional<Functor> addition = Addition(name, held)) return addition;
  if (std::optional<Functor> product = Product(name, held)) return product;
  if (std::optional<Functor> copy = Copy(name)) return copy;
  return Conversion(name);
}

}  // namespace commpool::internal::emulated_cudart
