#include "src/emulator/cudart/reduction.h"

#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "src/emulator/cudart/arithmetic.h"
#include "src/emulator/cudart/offsets.h"

namespace commpool::internal::emulated_cudart {

namespace {

enum class Kind { kSum, kMean };

struct Parts {
  std::string_view type;
  Kind kind;
};

// Reads the kernel's name, `void at::native::reduce_kernel<512, 1, at::native::ReduceOp<T, OPERATION, unsigned int, T,
// 4, 4> >(...)`. The result has the operand's type.
std::optional<Parts> PartsOf(std::string_view name) {
  if (!Skip(&name, "void at::native::reduce_kernel<") || !TakeUntil(&name, ", at::native::ReduceOp<")) {
    return std::nullopt;
  }
  const std::optional<std::string_view> type = TakeUntil(&name, ", ");
  if (!type) return std::nullopt;
  const std::string element(*type);
  const bool sum = Skip(&name, "at::native::func_wrapper_t<" + element + ", at::native::sum_functor<" + element + ", ");
  const bool mean = !sum && Skip(&name, "at::native::MeanOps<" + element + ", ");
  if (!sum && !mean) return std::nullopt;
  const bool same_result = name.find(", unsigned int, " + element + ", ") != std::string_view::npos;
  return same_result ? std::optional(Parts{*type, sum ? Kind::kSum : Kind::kMean}) : std::nullopt;
}

// Owns nothing: reads an at::ReduceOp, for UnderstandReduction. It has the operation, its neutral value, how the work
// is divided, and where operands and results are.
class Layout {
 public:
  Layout(const void* memory, size_t scalar_bytes) : memory_(static_cast<const char*>(memory)), scalar_(scalar_bytes) {}

  size_t inputs() const { return Read<uint32_t>(Configuration() + sizeof(uint32_t)); }
  size_t outputs() const { return Read<uint32_t>(Configuration() + 2 * sizeof(uint32_t)); }
  std::optional<Offsets> input_offsets() const {
    return Offsets::Read(memory_ + Configuration() + kConfigurationBytes, 1, inputs());
  }
  // The offsets of the results, and of the first operand of each result.
  std::optional<Offsets> output_offsets() const {
    return Offsets::Read(memory_ + Configuration() + kConfigurationBytes + Offsets::SizeFor(1), 2, outputs());
  }
  const char* source() const { return Read<const char*>(Pointers()); }
  const char* target() const { return Read<const char*>(Pointers() + sizeof(char*)); }
  // False for one part of a reduction that is too large for one launch: such a part continues from what is there.
  bool whole() const {
    constexpr size_t kFlags = 7 * sizeof(char*);  // skips the pointers, three buffers, the first index
    return !Read<bool>(Pointers() + kFlags) && Read<bool>(Pointers() + kFlags + 1);
  }
  // For a mean, the operation is its factor.
  template <typename Scalar>
  Scalar factor() const {
    return Read<Scalar>(0);
  }

 private:
  static constexpr size_t kConfigurationBytes = 64;

  size_t Configuration() const { return 2 * scalar_; }
  size_t Pointers() const {
    const size_t end = Configuration() + kConfigurationBytes + Offsets::SizeFor(1) + Offsets::SizeFor(2);
    return (end + sizeof(char*) - 1) / sizeof(char*) * sizeof(char*);
  }

  template <typename Value>
  Value Read(size_t offset) const {
    Value value;
    std::memcpy(&value, memory_ + offset, sizeof(value));
    return value;
  }

  const char* memory_;
  size_t scalar_;
};

double FactorOf(const Parts& parts, const Layout& layout) {
  if (parts.kind == Kind::kSum) return 1;
  return parts.type == "double" ? layout.factor<double>() : static_cast<double>(layout.factor<float>());
}

}  // namespace

std::unique_ptr<KernelWork> UnderstandReduction(const std::string& name, void** arguments) {
  const std::optional<Parts> parts = PartsOf(name);
  const Summation sum = parts ? SummationOf(parts->type) : nullptr;
  if (sum == nullptr) return nullptr;
  const Layout layout(arguments[0], ScalarBytesOf(parts->type));
  const std::optional<Offsets> inputs = layout.input_offsets();
  const std::optional<Offsets> outputs = layout.output_offsets();
  if (!inputs || !outputs || !layout.whole()) return nullptr;
  const size_t bytes = BytesOf(parts->type);
  auto work = std::make_unique<KernelWork>();
  work->name = parts->kind == Kind::kSum ? "sum" : "mean";
  work->reads.push_back(RangeOf(layout.source(), outputs->Last(1) + inputs->Last(0) + bytes));
  work->writes.push_back(RangeOf(layout.target(), outputs->Last(0) + bytes));
  work->duration_us = KernelDuration(work->reads.front().bytes);
  std::vector<size_t> places(layout.inputs());
  for (size_t index = 0; index < places.size(); ++index) places[index] = inputs->Of(0, index);
  work->run = [sum, places = std::move(places), outputs = *outputs, count = layout.outputs(),
               factor = FactorOf(*parts, layout)](const void* const* reads, void* const* writes) {
    for (size_t index = 0; index < count; ++index) {
      const auto* const first = static_cast<const char*>(reads[0]) + outputs.Of(1, index);
      sum(static_cast<char*>(writes[0]) + outputs.Of(0, index), first, places, factor);
    }
  };
  return work;
}

}  // namespace commpool::internal::emulated_cudart
