#include "src/emulator/cudart/elementwise.h"

#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "src/emulator/cudart/functors.h"
#include "src/emulator/cudart/offsets.h"

namespace commpool::internal::emulated_cudart {

namespace {

constexpr size_t kMostTensors = 3;

// A kernel over contiguous tensors, `void at::native::vectorized_elementwise_kernel<4, FUNCTOR, std::array<char*,
// 1ul>...>`, or the unrolled one.
struct Contiguous {
  std::string_view functor;
  size_t tensors = 0;  // the result, then the operands
};

std::optional<Contiguous> ContiguousOf(std::string_view name) {
  if (Skip(&name, "void at::native::vectorized_elementwise_kernel<")) {
    if (!TakeUntil(&name, ", ")) return std::nullopt;  // the number of elements for each thread
  } else if (!Skip(&name, "void at::native::unrolled_elementwise_kernel<") ||
             name.find("memory::LoadWithoutCast") == std::string_view::npos ||
             name.find("memory::StoreWithoutCast") == std::string_view::npos) {
    return std::nullopt;
  }
  const std::optional<std::string_view> functor = TakeUntil(&name, ", std::array<char*, ");
  if (!functor || name.size() < 3 || name.substr(1, 2) != "ul") return std::nullopt;
  return Contiguous{*functor, static_cast<size_t>(name[0] - '0')};
}

// Finds the functor in the name of a kernel over tensors with gaps or repeats: `void
// at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<FUNCTOR>(at::TensorIteratorBase&...`.
std::optional<std::string_view> StridedFunctorOf(std::string_view name) {
  if (!Skip(&name, "void at::native::elementwise_kernel<") ||
      !TakeUntil(&name, ", at::native::gpu_kernel_impl_nocast<")) {
    return std::nullopt;
  }
  // The functor's own name may contain the same words, but with nothing between the brackets.
  const size_t lambda = name.find("> >(at::TensorIteratorBase&, ");
  const size_t plain = name.find(">(at::TensorIteratorBase&, ");
  if (plain == std::string_view::npos) return std::nullopt;
  return lambda != std::string_view::npos && lambda + 2 == plain ? name.substr(0, lambda + 1) : name.substr(0, plain);
}

std::unique_ptr<KernelWork> WorkOf(std::string_view name, const Functor& functor, char* const* tensors,
                                   const std::array<size_t, kMostTensors>& bytes) {
  auto work = std::make_unique<KernelWork>();
  work->name = name;
  work->writes.push_back(RangeOf(tensors[0], bytes[0]));
  for (size_t index = 1; index <= functor.operands; ++index) {
    work->reads.push_back(RangeOf(tensors[index], bytes[index]));
  }
  work->duration_us = KernelDuration(bytes[0]);
  return work;
}

// The arguments of both kinds begin with the number of elements, the functor, and the tensors' addresses.
std::unique_ptr<KernelWork> UnderstandContiguous(const Contiguous& kernel, void** arguments) {
  const std::optional<Functor> functor = FunctorOf(kernel.functor, arguments[1]);
  if (!functor || !functor->compute || kernel.tensors != functor->operands + 1) return nullptr;
  const auto count = static_cast<size_t>(*static_cast<const int*>(arguments[0]));
  const size_t from_bytes = count * BytesOf(functor->from);
  auto work = WorkOf(kernel.functor, *functor, static_cast<char* const*>(arguments[2]),
                     {count * BytesOf(functor->to), from_bytes, from_bytes});
  work->run = [count, operands = functor->operands, compute = functor->compute](const void* const* reads,
                                                                                void* const* writes) {
    compute(writes[0], operands > 0 ? reads[0] : nullptr, operands > 1 ? reads[1] : nullptr, count);
  };
  return work;
}

// The second argument is a closure: the places of the elements, the tensors' addresses, and the functor.
std::unique_ptr<KernelWork> UnderstandStrided(std::string_view name, void** arguments) {
  constexpr size_t kAlignment = alignof(char*);
  const auto count = static_cast<size_t>(*static_cast<const int*>(arguments[0]));
  const auto* const closure = static_cast<const char*>(arguments[1]);
  // The functor's name tells the number of tensors, whatever the functor holds.
  constexpr char kNothing[64] = {};
  const std::optional<Functor> shape = FunctorOf(name, kNothing);
  if (!shape || !shape->compute) return nullptr;
  const size_t tensors = shape->operands + 1;
  const std::optional<Offsets> offsets = Offsets::Read(closure, tensors, count);
  if (!offsets) return nullptr;
  const char* const behind = closure + (Offsets::SizeFor(tensors) + kAlignment - 1) / kAlignment * kAlignment;
  const std::optional<Functor> functor = FunctorOf(name, behind + tensors * sizeof(char*));
  std::array<size_t, kMostTensors> bytes = {};
  for (size_t index = 0; index < tensors; ++index) {
    bytes[index] = offsets->Last(index) + BytesOf(index == 0 ? functor->to : functor->from);
  }
  auto work = WorkOf(name, *functor, reinterpret_cast<char* const*>(behind), bytes);
  work->run = [count, offsets = *offsets, operands = functor->operands, compute = functor->compute](
                  const void* const* reads, void* const* writes) {
    const auto operand = [&](size_t which, size_t index) -> const void* {
      if (which >= operands) return nullptr;
      return static_cast<const char*>(reads[which]) + offsets.Of(which + 1, index);
    };
    for (size_t index = 0; index < count; ++index) {
      compute(static_cast<char*>(writes[0]) + offsets.Of(0, index), operand(0, index), operand(1, index), 1);
    }
  };
  return work;
}

}  // namespace

std::unique_ptr<KernelWork> UnderstandElementwise(const std::string& name, void** arguments) {
  if (const std::optional<Contiguous> contiguous = ContiguousOf(name)) {
    return UnderstandContiguous(*contiguous, arguments);
  }
  const std::optional<std::string_view> strided = StridedFunctorOf(name);
  return strided ? UnderstandStrided(*strided, arguments) : nullptr;
}

}  // namespace commpool::internal::emulated_cudart
