#include "src/emulator/cudart/concatenation.h"

#include <charconv>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

namespace commpool::internal::emulated_cudart {

namespace {

constexpr size_t kMostTensors = 128;

// The part of PyTorch's CatArrInputTensorMetadata that contiguous tensors need.
struct Inputs {
  const char* data[kMostTensors];
  uint32_t offset[kMostTensors];  // in the result, in elements
  uint32_t size[kMostTensors];
  uint32_t elements[kMostTensors];
};

// Reads the size of an element from the kernel's name, for contiguous tensors of one dimension: `void
// at::native::(anonymous namespace)::CatArrayBatchedCopy_contig<...OpaqueType<4u>, unsigned int, 1, 128, 1...`.
std::optional<size_t> ElementBytes(std::string_view name) {
  constexpr std::string_view kNamespace = "at::native::(anonymous namespace)::";
  if (!Skip(&name, "void ") || !Skip(&name, kNamespace) || !Skip(&name, "CatArrayBatchedCopy_")) return std::nullopt;
  const std::optional<std::string_view> kind = TakeUntil(&name, "<");
  if (kind != "contig" && kind != "alignedK_contig" && kind != "vectorized") return std::nullopt;
  if (!Skip(&name, kNamespace) || !Skip(&name, "OpaqueType<")) return std::nullopt;
  size_t bytes = 0;
  const auto parsed = std::from_chars(name.data(), name.data() + name.size(), bytes);
  if (parsed.ec != std::errc()) return std::nullopt;
  name.remove_prefix(static_cast<size_t>(parsed.ptr - name.data()));
  return Skip(&name, "u>, unsigned int, 1, 128, 1") ? std::optional(bytes) : std::nullopt;
}

}  // namespace

std::unique_ptr<KernelWork> UnderstandConcatenation(const std::string& name, void** arguments, size_t tensors) {
  const std::optional<size_t> bytes = ElementBytes(name);
  if (!bytes || tensors == 0 || tensors > kMostTensors) return nullptr;
  const char* const target = *static_cast<char**>(arguments[0]);
  const auto& inputs = *static_cast<const Inputs*>(arguments[1]);
  auto work = std::make_unique<KernelWork>();
  work->name = "cat";
  size_t total = 0;
  for (size_t index = 0; index < tensors; ++index) {
    if (inputs.elements[index] != inputs.size[index]) return nullptr;  // it has another dimension
    const size_t part = inputs.elements[index] * *bytes;
    if (part == 0) continue;
    work->reads.push_back(RangeOf(inputs.data[index], part));
    work->writes.push_back(RangeOf(target + inputs.offset[index] * *bytes, part));
    total += part;
  }
  if (work->writes.empty()) return nullptr;
  work->duration_us = KernelDuration(total);
  work->run = [ranges = work->reads](const void* const* reads, void* const* writes) {
    for (size_t index = 0; index < ranges.size(); ++index) {
      std::memmove(writes[index], reads[index], ranges[index].bytes);
    }
  };
  return work;
}

}  // namespace commpool::internal::emulated_cudart
