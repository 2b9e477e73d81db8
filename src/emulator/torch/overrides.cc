#include "src/emulator/torch/overrides.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/util/Exception.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "src/emulator/torch/at_once.h"
#include "src/emulator/torch/blocks.h"
#include "src/emulator/torch/by_name.h"
#include "src/emulator/torch/convolution.h"
#include "src/emulator/torch/emulator.h"
#include "src/emulator/torch/place.h"
#include "src/emulator/torch/values.h"

namespace commpool::internal::emulated_torch {

namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::OperatorHandle;
using c10::Stack;
using Original =
    std::remove_cvref_t<decltype(std::declval<OperatorHandle>().getComputedKernelForDispatchKey(DispatchKey::CUDA))>;

// Make or describe memory, or have a way of their own to the device.
constexpr std::string_view kLeftAlone[] = {
    "aten::empty",          "aten::record_stream", "aten::_local_scalar_dense",
    "aten::set_",           "aten::resize_",       "aten::is_pinned",
    "aten::_pin_memory",    "aten::view",          "aten::as_strided",
    "aten::_reshape_alias", "aten::unfold",        "aten::_efficientzerotensor",
};

bool IsLeftAlone(const std::string& name) {
  for (const std::string_view prefix : kLeftAlone) {
    if (name.rfind(prefix, 0) == 0) return true;
  }
  return false;
}

int& Depth() {
  thread_local int depth = 0;
  return depth;
}

// Inside of a muted operation others run as PyTorch has them.
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

Stack Take(Stack* stack, size_t count) {
  Stack taken(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
  stack->resize(stack->size() - count);
  return taken;
}

// PyTorch's own CUDA code with muted launches, then the CPU kernel as a launch.
class Muted : public c10::OperatorKernel {
 public:
  Muted(Original original, CpuKernel kernel, const OperatorHandle& operation)
      : original_(std::move(original)),
        kernel_(kernel),
        draws_(Draws(operation)),
        has_cpu_(kernel != nullptr || operation.hasComputedKernelForDispatchKey(DispatchKey::CPU)) {}

  void operator()(const OperatorHandle& operation, DispatchKeySet keys, Stack* stack) const {
    if (Depth() != 0 || !has_cpu_) return CallOriginal(operation, keys, stack);
    AnnounceBlocks();
    const PlaceScope place;
    const size_t count = operation.schema().arguments().size();
    const Stack arguments(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
    const size_t below = stack->size() - count;
    std::optional<RandomState> random;
    if (draws_) random.emplace(arguments, DeviceOf(arguments).index());
    const commpoolEmulatorMuted seen = CallMuted(operation, keys, arguments, stack);
    if (seen.must_run_at_once != 0) {
      cudaGetLastError();
      stack->resize(below);
      RunAtOnce(operation, kernel_, arguments, random, DeviceOf(arguments), stack);
    } else if (seen.launches != 0) {
      const Stack results(stack->begin() + static_cast<std::ptrdiff_t>(below), stack->end());
      Enqueue(operation, kernel_, arguments, results, random);
    }
  }

 private:
  commpoolEmulatorMuted CallMuted(const OperatorHandle& operation, DispatchKeySet keys, const Stack& arguments,
                                  Stack* stack) const {
    commpoolEmulatorMuted seen = {};
    const uint64_t type = TypeOf(arguments);
    if ((compiled_.load(std::memory_order_relaxed) & type) != 0) {
      seen.must_run_at_once = 1;
      return seen;
    }
    MutedScope muted;
    try {
      original_.callBoxed(operation, keys, stack);
      seen = muted.End();
    } catch (const c10::Error& error) {
      seen = muted.End();
      if (std::string(error.what_without_backtrace()).find("no kernel image") != std::string::npos) {
        seen.must_run_at_once = 1;
        compiled_.fetch_or(type, std::memory_order_relaxed);
      }
      if (seen.must_run_at_once == 0) throw;
    }
    return seen;
  }

  // A bit for the type of the first tensor.
  static uint64_t TypeOf(const Stack& arguments) {
    uint64_t type = 0;
    for (const c10::IValue& argument : arguments) {
      ForEachTensor(argument, [&](const at::Tensor& tensor) {
        if (type == 0 && tensor.defined()) type = uint64_t{1} << static_cast<int>(tensor.scalar_type());
      });
    }
    return type;
  }

  void CallOriginal(const OperatorHandle& operation, DispatchKeySet keys, Stack* stack) const {
    original_.callBoxed(operation, keys, stack);
  }

  const Original original_;
  const CpuKernel kernel_;
  const bool draws_;
  const bool has_cpu_;
  mutable std::atomic<uint64_t> compiled_ = 0;  // types for which PyTorch compiles a kernel when it first runs
};

// Only a copy on one device is a kernel. PyTorch makes the others of copies between host and devices, which the
// emulated runtime has, and of copies on one device.
class Copy : public c10::OperatorKernel {
 public:
  Copy(Original original, const OperatorHandle& operation)
      : original_(original), muted_(std::move(original), nullptr, operation) {}

  void operator()(const OperatorHandle& operation, DispatchKeySet keys, Stack* stack) const {
    const size_t first = stack->size() - operation.schema().arguments().size();
    const at::Tensor to = (*stack)[first].toTensor();
    const at::Tensor from = (*stack)[first + 1].toTensor();
    if (Depth() != 0 || (to.is_cuda() && from.is_cuda() && to.device() == from.device())) {
      return muted_(operation, keys, stack);
    }
    AnnounceBlocks();
    if (to.is_cuda() && from.is_cuda() && !IsPlain(to, from)) {
      BetweenDevices(to, from);
      Take(stack, operation.schema().arguments().size());
      stack->emplace_back(to);
      return;
    }
    const PlaceScope place;
    original_.callBoxed(operation, keys, stack);
  }

 private:
  static bool IsPlain(const at::Tensor& to, const at::Tensor& from) {
    return to.scalar_type() == from.scalar_type() && to.is_contiguous() && from.is_contiguous() &&
           to.sizes() == from.sizes() && to.is_conj() == from.is_conj() && to.is_neg() == from.is_neg();
  }

  static void BetweenDevices(const at::Tensor& to, const at::Tensor& from) {
    at::Tensor here;
    {
      const c10::DeviceGuard guard(from.device());
      here = at::empty(from.sizes(), to.options().device(from.device()));
      here.copy_(from);
    }
    at::Tensor there = at::empty(from.sizes(), to.options());
    there.copy_(here);
    to.copy_(there);
  }

  const Original original_;
  const Muted muted_;
};

// An operation that makes its outputs here.
class Whole : public c10::OperatorKernel {
 public:
  using Outputs = Stack (*)(const Stack& arguments);

  explicit Whole(Outputs outputs) : outputs_(outputs) {}

  void operator()(const OperatorHandle& operation, DispatchKeySet, Stack* stack) const {
    AnnounceBlocks();
    const PlaceScope place;
    const Stack arguments = Take(stack, operation.schema().arguments().size());
    const c10::DeviceGuard guard(DeviceOf(arguments));
    const Stack results = outputs_(arguments);
    Enqueue(operation, nullptr, arguments, results, std::nullopt);
    stack->insert(stack->end(), results.begin(), results.end());
  }

 private:
  const Outputs outputs_;
};

// A collective, which NCCL submits: only its place is noted.
class Placed : public c10::OperatorKernel {
 public:
  explicit Placed(Original original) : original_(std::move(original)) {}

  void operator()(const OperatorHandle& operation, DispatchKeySet keys, Stack* stack) const {
    AnnounceBlocks();
    const PlaceScope place;
    original_.callBoxed(operation, keys, stack);
  }

 private:
  const Original original_;
};

// Owns the registrations, and never ends them.
class Registrations {
 public:
  static Registrations& Get() {
    static auto* const registrations = new Registrations;
    return *registrations;
  }

  template <typename Kernel>
  void Add(const c10::OperatorName& name, std::unique_ptr<Kernel> kernel) {
    handles_.push_back(c10::Dispatcher::singleton().registerImpl(
        name, DispatchKey::CUDA, c10::KernelFunction::makeFromBoxedFunctor(std::move(kernel)), std::nullopt, nullptr,
        "commpool emulator"));
  }

 private:
  std::vector<c10::RegistrationHandleRAII> handles_;
};

void Override(const c10::OperatorName& name) {
  const auto operation = c10::Dispatcher::singleton().findSchema(name);
  if (!operation.has_value() || !operation->hasComputedKernelForDispatchKey(DispatchKey::CUDA)) return;
  Registrations& registrations = Registrations::Get();
  const bool has_overload = !name.overload_name.empty();
  if (name.name == "aten::convolution" && !has_overload) {
    return registrations.Add(name, std::make_unique<Whole>(ConvolutionOutputs));
  }
  if (name.name == "aten::convolution_backward" && !has_overload) {
    return registrations.Add(name, std::make_unique<Whole>(ConvolutionBackwardOutputs));
  }
  Original original = operation->getComputedKernelForDispatchKey(DispatchKey::CUDA);
  if (name.name.rfind("c10d::", 0) == 0) {
    return registrations.Add(name, std::make_unique<Placed>(std::move(original)));
  }
  if (name.name == "aten::copy_" && !has_overload) {
    return registrations.Add(name, std::make_unique<Copy>(std::move(original), *operation));
  }
  const CpuKernel kernel = has_overload ? nullptr : KernelByName(name.name);
  registrations.Add(name, std::make_unique<Muted>(std::move(original), kernel, *operation));
}

// PyTorch warns of an override. Here it is on purpose.
class Silence : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override {}
};

}  // namespace

void OverrideOperations() {
  Silence silence;
  const c10::WarningUtils::WarningHandlerGuard guard(&silence);
  std::vector<c10::OperatorName> names = c10::Dispatcher::singleton().getRegistrationsForDispatchKey(DispatchKey::CUDA);
  for (const char* const composite : {"aten::copy_", "aten::convolution", "aten::convolution_backward"}) {
    names.emplace_back(composite, "");
  }
  for (const c10::OperatorName& name : names) {
    const bool of_aten = name.name.rfind("aten::", 0) == 0 && !IsLeftAlone(name.name);
    if (of_aten || name.name.rfind("c10d::", 0) == 0) Override(name);
  }
}

}  // namespace commpool::internal::emulated_torch
