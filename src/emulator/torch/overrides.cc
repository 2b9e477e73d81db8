#include "src/emulator/torch/overrides.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/util/Exception.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

#include "src/emulator/torch/at_once.h"
#include "src/emulator/torch/blocks.h"
#include "src/emulator/torch/by_name.h"
#include "src/emulator/torch/convolution.h"
#include "src/emulator/torch/deferred.h"
#include "src/emulator/torch/muted.h"
#include "src/emulator/torch/place.h"
#include "src/emulator/torch/values.h"

namespace commpool::internal::emulated_torch {

namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::OperatorHandle;
using c10::Stack;

// Make or describe memory, or have a way of their own to the device.
bool IsLeftAlone(const std::string& name) {
  static const auto* const names = new std::unordered_set<std::string_view>{
      "aten::empty",
      "aten::empty_strided",
      "aten::record_stream",
      "aten::set_",
      "aten::is_pinned",
      "aten::_pin_memory",
      "aten::view",
      "aten::view_as_real",
      "aten::as_strided",
      "aten::view_as_complex",
      "aten::unfold",
      "aten::_reshape_alias",
      "aten::_efficientzerotensor",
  };
  return names->contains(name);
}

// Have a kernel of their own, although PyTorch makes them of other operations or knows them under no device.
constexpr std::pair<const char*, const char*> kComposite[] = {
    {"aten::copy_", ""},       {"aten::convolution", ""}, {"aten::convolution_backward", ""},
    {"aten::ldexp", "Tensor"}, {"aten::ldexp", "out"},    {"aten::ldexp_", ""},
};

Stack Take(Stack* stack, size_t count) {
  Stack taken(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
  stack->resize(stack->size() - count);
  return taken;
}

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
    if (IsInsideOfMuted() || (to.is_cuda() && from.is_cuda() && to.device() == from.device())) {
      return muted_(operation, keys, stack);
    }
    AnnounceBlocks();
    AnnouncePinned(to);
    AnnouncePinned(from);
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

// An operation on sparse or nested tensors. PyTorch makes most of them of others; what has a kernel runs at once.
class AtOnceIfRefused : public c10::OperatorKernel {
 public:
  explicit AtOnceIfRefused(Original original) : original_(std::move(original)) {}

  void operator()(const OperatorHandle& operation, DispatchKeySet keys, Stack* stack) const {
    if (IsInsideOfMuted()) return original_.callBoxed(operation, keys, stack);
    const PlaceScope place;
    const size_t below = stack->size() - operation.schema().arguments().size();
    const Stack arguments(stack->begin() + static_cast<std::ptrdiff_t>(below), stack->end());
    try {
      original_.callBoxed(operation, keys, stack);
      // Some ask nobody whether their kernel ran.
      if (cudaPeekAtLastError() != cudaErrorNoKernelImageForDevice) return;
    } catch (const std::exception& error) {
      if (!IsRefusal(error)) throw;
    }
    cudaGetLastError();
    stack->resize(below);
    RunAtOnce(operation, nullptr, arguments, std::nullopt, DeviceOf(arguments), stack);
  }

 private:
  const Original original_;
};

// A collective, which NCCL submits, or copies of PyTorch's: only its place is noted.
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
  void Add(const c10::OperatorName& name, std::unique_ptr<Kernel> kernel, DispatchKey key = DispatchKey::CUDA) {
    handles_.push_back(c10::Dispatcher::singleton().registerImpl(
        name, key, c10::KernelFunction::makeFromBoxedFunctor(std::move(kernel)), std::nullopt, nullptr,
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
  if (name.name.rfind("c10d::", 0) == 0 || name.name == "aten::_local_scalar_dense" || name.name == "aten::resize_") {
    return registrations.Add(name, std::make_unique<Placed>(std::move(original)));
  }
  if (name.name == "aten::copy_" && !has_overload) {
    return registrations.Add(name, std::make_unique<Copy>(std::move(original), *operation));
  }
  const CpuKernel kernel = KernelByName(name);
  registrations.Add(name, std::make_unique<Muted>(std::move(original), kernel, *operation));
}

// PyTorch warns of an override. Here it is on purpose.
class Silence : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override {}
};

// Learns that a library has brought operations. It has no kernels at that moment.
class NewOperations : public c10::OpRegistrationListener {
 public:
  static std::atomic<bool>& Have() {
    static std::atomic<bool> have = false;
    return have;
  }
  void onOperatorRegistered(const OperatorHandle&) override { Have().store(true, std::memory_order_release); }
  void onOperatorDeregistered(const OperatorHandle&) override {}
};

bool IsOfPyTorch(const c10::OperatorName& name) {
  for (const char* const space : {"aten::", "c10d::", "fsdp::", "prim::", "prims::", "quantized::", "_quantized::"}) {
    if (name.name.rfind(space, 0) == 0) return true;
  }
  return false;
}

// Says whether the kernel for the CPU or for CUDA is a function of Python, which would take Python's lock within the
// driver's. PyTorch notes the file that registers each.
bool IsInPython(const OperatorHandle& operation) {
  std::istringstream lines(operation.dumpState());
  for (std::string line; std::getline(lines, line);) {
    const bool ours = line.rfind("CPU", 0) == 0 || line.rfind("CUDA", 0) == 0;
    if (ours && line.find(".py:") != std::string::npos) return true;
  }
  return false;
}

}  // namespace

void OverrideLaterOperations() {
  if (!NewOperations::Have().load(std::memory_order_acquire)) return;
  static auto* const mutex = new std::mutex;
  static auto* const known = new std::unordered_set<c10::OperatorName>;
  const std::lock_guard lock(*mutex);
  if (!NewOperations::Have().exchange(false, std::memory_order_acq_rel)) return;
  Silence silence;
  const c10::WarningUtils::WarningHandlerGuard guard(&silence);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getRegistrationsForDispatchKey(DispatchKey::CUDA)) {
    if (IsOfPyTorch(name) || !known->insert(name).second) continue;
    const auto operation = dispatcher.findSchema(name);
    if (operation->hasKernelForDispatchKey(DispatchKey::CPU) && !IsInPython(*operation)) Override(name);
  }
}

void OverrideOperations() {
  Silence silence;
  const c10::WarningUtils::WarningHandlerGuard guard(&silence);
  auto& dispatcher = c10::Dispatcher::singleton();
  std::vector<c10::OperatorName> names = dispatcher.getRegistrationsForDispatchKey(DispatchKey::CUDA);
  for (const auto& [name, overload] : kComposite) names.emplace_back(name, overload);
  for (const c10::OperatorName& name : names) {
    const bool of_aten = name.name.rfind("aten::", 0) == 0 && !IsLeftAlone(name.name);
    if (of_aten || name.name.rfind("c10d::", 0) == 0 || name.name.rfind("fsdp::", 0) == 0) Override(name);
  }
  for (const DispatchKey key : {DispatchKey::SparseCUDA, DispatchKey::SparseCsrCUDA, DispatchKey::NestedTensorCUDA}) {
    for (const c10::OperatorName& name : dispatcher.getRegistrationsForDispatchKey(key)) {
      if (name.name.rfind("aten::", 0) != 0 || IsLeftAlone(name.name)) continue;
      Original original = dispatcher.findSchema(name)->getComputedKernelForDispatchKey(key);
      Registrations::Get().Add(name, std::make_unique<AtOnceIfRefused>(std::move(original)), key);
    }
  }
  static auto* const listens =
      new c10::RegistrationHandleRAII(dispatcher.addRegistrationListener(std::make_unique<NewOperations>()));
  static_cast<void>(listens);
}

}  // namespace commpool::internal::emulated_torch
