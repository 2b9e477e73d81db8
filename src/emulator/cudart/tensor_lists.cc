#include "src/emulator/cudart/tensor_lists.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "src/emulator/cudart/arithmetic.h"

namespace commpool::internal::emulated_cudart {

namespace {

constexpr int64_t kChunkElements = 65536;
constexpr size_t kMostBlocks = 2240;

// PyTorch built for CUDA 13 calls this TensorListMetadata. It holds one or two lists.
template <size_t kLists, size_t kMostTensors>
struct Metadata {
  char* tensors[kLists][kMostTensors];
  int64_t elements[kMostTensors];
  uint16_t tensor_of_block[kMostBlocks];
  int32_t chunk_of_block[kMostBlocks];
};

// What one block works on: one address for each list.
struct Part {
  std::array<char*, 2> tensors;
  size_t elements;
};

// Returns an empty list if the memory does not hold valid metadata.
template <size_t kLists, size_t kMostTensors>
std::vector<Part> PartsOf(const void* memory, size_t blocks, size_t element_bytes) {
  const auto& metadata = *static_cast<const Metadata<kLists, kMostTensors>*>(memory);
  std::vector<Part> parts;
  for (size_t block = 0; block < blocks; ++block) {
    const size_t tensor = metadata.tensor_of_block[block];
    const int64_t first = metadata.chunk_of_block[block] * kChunkElements;
    if (tensor >= kMostTensors || first < 0 || first >= metadata.elements[tensor]) return {};
    Part part{{}, static_cast<size_t>(std::min(metadata.elements[tensor] - first, kChunkElements))};
    for (size_t list = 0; list < kLists; ++list) {
      part.tensors.at(list) = metadata.tensors[list][tensor] + static_cast<size_t>(first) * element_bytes;
    }
    parts.push_back(part);
  }
  return parts;
}

// The first list holds the results, and operands too.
struct Operation {
  size_t lists = 1;
  std::string_view type;
  Elements compute;
};

// Finds the operation that a template argument names. Its scalar is the kernel's last argument.
Elements ComputeOf(std::string_view type, std::string_view operation, size_t lists, const void* scalar) {
  std::array<char, 2 * sizeof(double)> held = {};
  const size_t bytes = ScalarBytesOf(type);
  if (bytes == 0) return {};
  std::memcpy(held.data(), scalar, bytes);
  if (operation.starts_with("std::plus<") && lists == 2) return ElementsOf(Formula::kAddScaled, type, held.data());
  if (operation.starts_with("std::multiplies<") && lists == 1) return ElementsOf(Formula::kScale, type, held.data());
  return {};
}

// `void ...multi_tensor_apply_kernel<...TensorListMetadata<2>, ...BinaryOpListAlphaFunctor<T, 2, 2, 0>, std::plus<U>,
// U>`
std::optional<Operation> OperationOf(std::string_view name, void** arguments) {
  constexpr std::string_view kNamespace = "at::native::(anonymous namespace)::";
  if (!Skip(&name, "void ") || !Skip(&name, kNamespace) || !Skip(&name, "multi_tensor_apply_kernel<") ||
      !Skip(&name, kNamespace) || !Skip(&name, "TensorListMetadata<")) {
    return std::nullopt;
  }
  const bool two = Skip(&name, "2>, ");
  if ((!two && !Skip(&name, "1>, ")) || !Skip(&name, kNamespace)) return std::nullopt;
  if (!Skip(&name, two ? "BinaryOpListAlphaFunctor<" : "BinaryOpScalarFunctor<")) return std::nullopt;
  const std::optional<std::string_view> type = TakeUntil(&name, ", ");
  if (!type || !Skip(&name, two ? "2, 2, 0>, " : "1, 1, 0>, ")) return std::nullopt;
  const size_t lists = two ? 2 : 1;
  return Operation{lists, *type, ComputeOf(*type, name, lists, arguments[3])};
}

}  // namespace

std::unique_ptr<KernelWork> UnderstandTensorLists(const std::string& name, void** arguments, size_t blocks) {
  const std::optional<Operation> operation = OperationOf(name, arguments);
  if (!operation || !operation->compute || blocks == 0 || blocks > kMostBlocks) return nullptr;
  const size_t bytes = BytesOf(operation->type);
  std::vector<Part> parts = operation->lists == 2 ? PartsOf<2, 448>(arguments[0], blocks, bytes)
                                                  : PartsOf<1, 770>(arguments[0], blocks, bytes);
  if (parts.empty()) return nullptr;
  auto work = std::make_unique<KernelWork>();
  work->name = operation->lists == 2 ? "foreach add" : "foreach mul";
  size_t total = 0;
  for (const Part& part : parts) {
    work->writes.push_back(RangeOf(part.tensors[0], part.elements * bytes));
    for (size_t list = 0; list < operation->lists; ++list) {
      work->reads.push_back(RangeOf(part.tensors.at(list), part.elements * bytes));
    }
    total += part.elements * bytes;
  }
  work->duration_us = KernelDuration(total);
  work->run = [parts = std::move(parts), lists = operation->lists, compute = operation->compute](
                  const void* const* reads, void* const* writes) {
    for (size_t index = 0; index < parts.size(); ++index) {
      const void* const* const operands = reads + lists * index;
      compute(writes[index], operands[0], lists == 2 ? operands[1] : nullptr, parts[index].elements);
    }
  };
  return work;
}

}  // namespace commpool::internal::emulated_cudart
