#include "src/emulator/cudart/elementwise.h"

#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "src/emulator/cudart/arithmetic.h"

namespace commpool::internal::emulated_cudart {

namespace {

// Takes what stands before `end` from the text, and `end` as well; nothing where there is no `end`.
std::optional<std::string_view> TakeUntil(std::string_view* text, std::string_view end) {
  const size_t found = text->find(end);
  if (found == std::string_view::npos) return std::nullopt;
  const std::string_view taken = text->substr(0, found);
  text->remove_prefix(found + end.size());
  return taken;
}

bool Skip(std::string_view* text, std::string_view begin) {
  if (!text->starts_with(begin)) return false;
  text->remove_prefix(begin.size());
  return true;
}

// The parts of a name such as `void at::native::vectorized_elementwise_kernel<4, FUNCTOR, std::array<char*, 1ul>...>`.
struct Parts {
  std::string_view functor;
  size_t tensors = 0;  // the result, then the operands
};

std::optional<Parts> PartsOf(std::string_view name) {
  if (Skip(&name, "void at::native::vectorized_elementwise_kernel<")) {
    if (!TakeUntil(&name, ", ")) return std::nullopt;  // elements a thread
  } else if (!Skip(&name, "void at::native::unrolled_elementwise_kernel<") ||
             name.find("memory::LoadWithoutCast") == std::string_view::npos ||
             name.find("memory::StoreWithoutCast") == std::string_view::npos) {
    return std::nullopt;
  }
  const std::optional<std::string_view> functor = TakeUntil(&name, ", std::array<char*, ");
  if (!functor || name.size() < 3 || name.substr(1, 2) != "ul") return std::nullopt;
  return Parts{*functor, static_cast<size_t>(name[0] - '0')};
}

// What a functor computes, of elements of which types, and the scalars that it holds.
struct Meaning {
  std::string_view from;
  std::string_view to;
  size_t operands = 0;
  Elements compute;
};

// FUNCTOR<T>
std::optional<Meaning> Addition(std::string_view functor, const char* held) {
  std::string_view type = functor;
  const bool of_two = Skip(&type, "at::native::CUDAFunctor_add<");
  if (!of_two && !Skip(&type, "at::native::CUDAFunctorOnSelf_add<")) return std::nullopt;
  type.remove_suffix(1);
  const Formula formula = of_two ? Formula::kAddScaled : Formula::kAddConstant;
  return Meaning{type, type, of_two ? size_t{2} : size_t{1}, ElementsOf(formula, type, held)};
}

// FUNCTOR<T, T, T, at::native::binary_internal::OPERATION<U> >, with a scalar behind the operation where one operand is
// one: the operation has no members, so the scalar is aligned to its own size.
std::optional<Meaning> Product(std::string_view functor, const char* held) {
  const bool of_two = Skip(&functor, "at::native::BinaryFunctor<");
  const bool first = !of_two && Skip(&functor, "at::native::AUnaryFunctor<");
  if (!of_two && !first && !Skip(&functor, "at::native::BUnaryFunctor<")) return std::nullopt;
  const std::optional<std::string_view> type = TakeUntil(&functor, ", ");
  if (!type || TakeUntil(&functor, ", ") != type || TakeUntil(&functor, ", ") != type) return std::nullopt;
  const bool multiplies = functor.starts_with("at::native::binary_internal::MulFunctor<");
  const bool divides = functor.starts_with("at::native::binary_internal::DivFunctor<");
  if (of_two && (multiplies || divides)) {
    return Meaning{*type, *type, 2, ElementsOf(multiplies ? Formula::kMultiply : Formula::kDivide, *type, nullptr)};
  }
  if (!multiplies) return std::nullopt;
  return Meaning{*type, *type, 1, ElementsOf(Formula::kScale, *type, held + ScalarBytesOf(*type))};
}

// at::native::converting_copy_kernel_cuda<FROM, TO>(...)
std::optional<Meaning> Conversion(std::string_view functor) {
  if (!Skip(&functor, "at::native::converting_copy_kernel_cuda<")) return std::nullopt;
  const std::optional<std::string_view> from = TakeUntil(&functor, ", ");
  const std::optional<std::string_view> to = from ? TakeUntil(&functor, ">(") : std::nullopt;
  if (!to) return std::nullopt;
  return Meaning{*from, *to, 1, ConversionOf(*from, *to)};
}

// FillFunctor<T> holds the value.
std::optional<Meaning> Filling(std::string_view functor, const char* held) {
  if (!Skip(&functor, "at::native::FillFunctor<")) return std::nullopt;
  functor.remove_suffix(1);
  const size_t bytes = BytesOf(functor);
  if (bytes == 0) return std::nullopt;
  const std::vector<char> value(held, held + bytes);
  return Meaning{functor, functor, 0, [value](void* result, const void*, const void*, size_t count) {
                   auto* to = static_cast<char*>(result);
                   for (size_t index = 0; index < count; ++index, to += value.size()) {
                     std::memcpy(to, value.data(), value.size());
                   }
                 }};
}

std::optional<Meaning> MeaningOf(std::string_view functor, const char* held) {
  if (std::optional<Meaning> filling = Filling(functor, held)) return filling;
  if (std::optional<Meaning> addition = Addition(functor, held)) return addition;
  if (std::optional<Meaning> product = Product(functor, held)) return product;
  return Conversion(functor);
}

commpoolEmulatorRange Range(const char* tensor, size_t bytes) { return {reinterpret_cast<CUdeviceptr>(tensor), bytes}; }

}  // namespace

// Both kinds of kernel begin with the number of elements, the functor, and the tensors' addresses.
std::unique_ptr<KernelWork> UnderstandElementwise(const std::string& name, void** arguments) {
  const std::optional<Parts> parts = PartsOf(name);
  if (!parts) return nullptr;
  const std::optional<Meaning> meaning = MeaningOf(parts->functor, static_cast<const char*>(arguments[1]));
  if (!meaning || !meaning->compute || parts->tensors != meaning->operands + 1) return nullptr;
  const auto count = static_cast<size_t>(*static_cast<const int*>(arguments[0]));
  auto* const* const tensors = static_cast<char* const*>(arguments[2]);
  constexpr double kBytesPerMicrosecond = 2.0e6;  // as the driver's copies
  auto work = std::make_unique<KernelWork>();
  work->name = parts->functor;
  work->writes.push_back(Range(tensors[0], count * BytesOf(meaning->to)));
  for (size_t index = 1; index < parts->tensors; ++index) {
    work->reads.push_back(Range(tensors[index], count * BytesOf(meaning->from)));
  }
  work->duration_us = 2.0 + static_cast<double>(work->writes.front().bytes) / kBytesPerMicrosecond;
  work->run = [count, operands = meaning->operands, compute = meaning->compute](const void* const* reads,
                                                                                void* const* writes) {
    compute(writes[0], operands > 0 ? reads[0] : nullptr, operands > 1 ? reads[1] : nullptr, count);
  };
  return work;
}

}  // namespace commpool::internal::emulated_cudart
