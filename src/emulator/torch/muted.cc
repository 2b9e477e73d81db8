#include "src/emulator/torch/muted.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/util/Exception.h>
#include <cuda_runtime_api.h>

#include <string_view>

#include "src/emulator/torch/at_once.h"
#include "src/emulator/torch/blocks.h"
#include "src/emulator/torch/emulator.h"
#include "src/emulator/torch/overrides.h"
#include "src/emulator/torch/place.h"
#include "src/emulator/torch/values.h"

namespace commpool::internal::emulated_torch {

namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::OperatorHandle;
using c10::Stack;

int& Depth() {
  thread_local int depth = 0;
  return depth;
}

class MutedScope {
 public:
  MutedScope() {
    ++Depth();
    TheEmulator().mute_begin();
  }
  ~MutedScope() {
    if (open_) End();
  }
  MutedScope(const MutedScope&) = delete;
  MutedScope& operator=(const MutedScope&) = delete;

  commpoolEmulatorMuted End() {
    open_ = false;
    --Depth();
    return TheEmulator().mute_end();
  }

 private:
  bool open_ = true;
};

// A bit for the type of the first tensor.
uint64_t TypeOf(const Stack& stack, size_t below) {
  uint64_t type = 0;
  for (size_t index = below; index < stack.size(); ++index) {
    ForEachTensor(stack[index], [&](const at::Tensor& tensor) {
      if (type == 0 && tensor.defined()) type = uint64_t{1} << static_cast<int>(tensor.scalar_type());
    });
  }
  return type;
}

// PyTorch makes operations on one tensor each of those on lists of tensors of several devices.
bool ListsSeveralDevices(const Stack& arguments) {
  std::optional<c10::Device> device;
  bool several = false;
  for (const c10::IValue& argument : arguments) {
    if (!argument.isTensorList()) continue;
    ForEachTensor(argument, [&](const at::Tensor& tensor) {
      if (!tensor.defined() || !tensor.is_cuda()) return;
      several = several || device.value_or(tensor.device()) != tensor.device();
      device = tensor.device();
    });
  }
  return several;
}

bool AreStrided(const Stack& results) {
  bool strided = true;
  for (const c10::IValue& result : results) {
    ForEachTensor(result, [&](const at::Tensor& tensor) {
      if (tensor.defined() && (tensor.layout() != at::kStrided || tensor.is_nested())) strided = false;
    });
  }
  return strided;
}

at::Tensor OnMeta(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_cuda()) return tensor;
  at::Tensor meta = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(c10::kMeta));
  if (tensor.is_conj()) meta._set_conj(true);
  return meta;
}

// The argument that a result is; null if the operation makes the result.
const c10::IValue* WrittenArgument(const c10::FunctionSchema& schema, size_t result, const Stack& arguments) {
  const c10::AliasInfo* const alias = schema.returns()[result].alias_info();
  for (size_t index = 0; alias != nullptr && index < arguments.size(); ++index) {
    const c10::AliasInfo* const other = schema.arguments()[index].alias_info();
    if (other != nullptr && *other == *alias) return &arguments[index];
  }
  return nullptr;
}

// Leaves results on the stack that have the sizes of those of meta tensors. False if they cannot be had so.
bool MakeResults(const OperatorHandle& operation, const Stack& arguments, c10::Device device, Stack* stack) {
  if (!operation.hasComputedKernelForDispatchKey(DispatchKey::Meta)) return false;
  Stack values;
  for (const c10::IValue& argument : arguments) values.push_back(WithTensors(argument, OnMeta));
  try {
    operation.callBoxed(&values);
  } catch (const std::exception&) {
    return false;
  }
  for (size_t index = 0; index < values.size(); ++index) {
    if (!values[index].isTensor()) return false;
    const at::Tensor made = values[index].toTensor();
    const c10::IValue* const written = WrittenArgument(operation.schema(), index, arguments);
    if (written == nullptr) {
      stack->emplace_back(at::empty_strided(made.sizes(), made.strides(), made.options().device(device)));
    } else {
      if (written->toTensor().sizes() != made.sizes()) return false;
      stack->push_back(*written);
    }
  }
  return true;
}

}  // namespace

bool IsInsideOfMuted() { return Depth() != 0; }

bool IsRefusal(const std::exception& error) {
  const auto* const of_torch = dynamic_cast<const c10::Error*>(&error);
  const std::string_view text = of_torch != nullptr ? of_torch->what_without_backtrace() : error.what();
  for (const char* const said : {"no kernel image", "calling `cusparse", "CUBLAS_STATUS_NOT_INITIALIZED"}) {
    if (text.find(said) != std::string_view::npos) return true;
  }
  return false;
}

c10::Device DeviceOf(const Stack& arguments) {
  std::optional<c10::Device> device;
  for (const c10::IValue& argument : arguments) {
    ForEachTensor(argument, [&](const at::Tensor& tensor) {
      if (!device.has_value() && tensor.defined() && tensor.is_cuda()) device = tensor.device();
    });
    if (argument.isDevice() && argument.toDevice().is_cuda() && argument.toDevice().has_index()) {
      device = argument.toDevice();
    }
  }
  return device.value_or(c10::Device(c10::kCUDA, c10::cuda::current_device()));
}

Muted::Muted(Original original, CpuKernel kernel, const OperatorHandle& operation)
    : original_(std::move(original)),
      kernel_(kernel),
      draws_(Draws(operation)),
      has_cpu_(kernel != nullptr || operation.hasComputedKernelForDispatchKey(DispatchKey::CPU)) {}

void Muted::operator()(const OperatorHandle& operation, DispatchKeySet keys, Stack* stack) const {
  if (Depth() != 0 || !has_cpu_) return original_.callBoxed(operation, keys, stack);
  const size_t below = stack->size() - operation.schema().arguments().size();
  const Stack arguments(stack->begin() + static_cast<std::ptrdiff_t>(below), stack->end());
  if (ListsSeveralDevices(arguments)) return original_.callBoxed(operation, keys, stack);
  AnnounceBlocks();
  OverrideLaterOperations();
  const PlaceScope place;
  std::optional<RandomState> random;
  if (draws_) random.emplace(arguments, DeviceOf(arguments).index());
  commpoolEmulatorMuted seen = CallMuted(operation, keys, stack);
  if (seen.must_run_at_once == 0 && seen.launches == 0) return;
  Stack results;
  if (seen.must_run_at_once == 0) {
    results.assign(stack->begin() + static_cast<std::ptrdiff_t>(below), stack->end());
    if (!AreStrided(results)) seen.must_run_at_once = 1;
  }
  if (seen.must_run_at_once == 0) return Enqueue(operation, kernel_, arguments, results, random);
  stack->resize(below);
  if (WhenKernelsRun() == Kernels::kNone && MakeResults(operation, arguments, DeviceOf(arguments), stack)) return;
  stack->resize(below);
  RunAtOnce(operation, kernel_, arguments, random, DeviceOf(arguments), stack);
}

commpoolEmulatorMuted Muted::CallMuted(const OperatorHandle& operation, DispatchKeySet keys, Stack* stack) const {
  commpoolEmulatorMuted seen = {};
  const size_t below = stack->size() - operation.schema().arguments().size();
  const uint64_t type = TypeOf(*stack, below);
  const Stack arguments(stack->begin() + static_cast<std::ptrdiff_t>(below), stack->end());
  bool compiled = (compiled_.load(std::memory_order_relaxed) & type) != 0;
  if (!compiled) {
    MutedScope muted;
    try {
      original_.callBoxed(operation, keys, stack);
      return muted.End();
    } catch (const std::exception& error) {
      seen = muted.End();
      cudaGetLastError();
      compiled = IsRefusal(error);
      if (seen.must_run_at_once == 0 && !compiled) throw;
    }
    if (!compiled) return seen;
    compiled_.fetch_or(type, std::memory_order_relaxed);
  }
  stack->resize(below);
  const bool made = MakeResults(operation, arguments, DeviceOf(arguments), stack);
  if (!made) stack->resize(below);
  seen.launches = made ? 1 : 0;
  seen.must_run_at_once = made ? 0 : 1;
  return seen;
}

}  // namespace commpool::internal::emulated_torch
