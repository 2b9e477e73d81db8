#include "src/emulator/torch/deferred.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/InferenceMode.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

#include <cstdio>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "src/emulator/torch/emulator.h"
#include "src/emulator/torch/python_frames.h"
#include "src/emulator/torch/values.h"

namespace commpool::internal::emulated_torch {

namespace {

constexpr double kLaunchMicroseconds = 2;
constexpr double kBytesEachMicrosecond = 2e6;

// A type of elements that kernels of the CPU may lack, by PyTorch's name, and one that holds its values.
struct LackedType {
  const char* name;
  at::ScalarType type;
  at::ScalarType instead;
};
constexpr LackedType kLackedTypes[] = {
    {"Half", at::kHalf, at::kFloat},    {"BFloat16", at::kBFloat16, at::kFloat}, {"'Byte'", at::kByte, at::kDouble},
    {"'Char'", at::kChar, at::kDouble}, {"'Short'", at::kShort, at::kDouble},    {"'Int'", at::kInt, at::kDouble},
    {"'Long'", at::kLong, at::kDouble}, {"'Bool'", at::kBool, at::kByte},
};

// Those of which the error says that there is no kernel. Where it names one of the short floats, both.
std::vector<LackedType> TypesLacked(const std::string& message) {
  std::vector<LackedType> lacked;
  bool missing = false;
  for (const char* const said : {"not implemented for", "not support", "expected scalar type"}) {
    missing = missing || message.find(said) != std::string::npos;
  }
  for (const LackedType& type : kLackedTypes) {
    if (missing && message.find(type.name) != std::string::npos) lacked.push_back(type);
  }
  if (!lacked.empty() && lacked[0].instead == at::kFloat) lacked = {kLackedTypes[0], kLackedTypes[1]};
  return lacked;
}

void Call(const c10::OperatorHandle& operation, CpuKernel kernel, c10::Stack* stack, const at::Generator& generator) {
  if (kernel == nullptr) return operation.callBoxed(stack);
  const c10::Stack arguments = *stack;
  kernel(operation, stack, generator);
  // It knows no `out`.
  for (size_t index = 0; index < arguments.size(); ++index) {
    const c10::Argument& argument = operation.schema().arguments()[index];
    if (!argument.is_out() || !arguments[index].isTensor()) continue;
    c10::IValue& result = (*stack)[stack->size() - (arguments.size() - index)];
    result = arguments[index].toTensor().copy_(result.toTensor());
  }
}

// The arguments in types that the CPU has, and what was written of them converted back.
void CallInOtherTypes(const c10::OperatorHandle& operation, CpuKernel kernel, c10::Stack* stack,
                      const at::Generator& generator, const std::vector<LackedType>& lacked) {
  std::vector<std::pair<at::Tensor, at::Tensor>> written;
  const c10::Stack arguments = *stack;
  for (size_t index = 0; index < arguments.size(); ++index) {
    (*stack)[index] = WithTensors(arguments[index], [&](const at::Tensor& tensor) {
      for (const LackedType& type : lacked) {
        if (!tensor.defined() || tensor.scalar_type() != type.type) continue;
        at::Tensor wide = tensor.to(type.instead);
        if (Writes(operation.schema(), arguments, index)) written.emplace_back(tensor, wide);
        return wide;
      }
      return tensor;
    });
  }
  Call(operation, kernel, stack, generator);
  for (auto& [narrow, wide] : written) narrow.copy_(wide);
}

// Owns what a submitted operation needs to run, and no tensor of the program's. The emulator's driver ends it.
class Deferred {
 public:
  Deferred(const c10::OperatorHandle& operation, CpuKernel kernel, const std::optional<RandomState>& random)
      : operation_(operation), kernel_(kernel), random_(random), name_(operation.operator_name().name) {
    const std::string& overload = operation.operator_name().overload_name;
    if (!overload.empty()) name_ += "." + overload;
  }

  void TakeArguments(const c10::Stack& arguments);
  void TakeResults(const c10::Stack& results);
  void Launch(std::unique_ptr<Deferred> self);

 private:
  static void Run(void* context, const void* const* reads, void* const* writes) {
    static_cast<const Deferred*>(context)->RunOn(reads, writes);
  }
  static void RunNothing(void*, const void* const*, void* const*) {}
  static void End(void* context) { delete static_cast<Deferred*>(context); }

  void RunOn(const void* const* reads, void* const* writes) const;
  void Compute(const void* const* reads, void* const* writes) const;
  static void NoteDevice(const at::Tensor& tensor, std::optional<c10::Device>* device) {
    if (tensor.defined() && tensor.is_cuda() && !device->has_value()) *device = tensor.device();
  }

  const c10::OperatorHandle operation_;
  const CpuKernel kernel_;
  std::optional<RandomState> random_;
  std::string name_;
  c10::Stack arguments_;                         // without tensors
  std::vector<Operand> operands_;                // of the arguments, in their order
  std::vector<std::optional<Operand>> results_;  // empty: nothing to copy
  std::unordered_set<const void*> written_;      // arguments
  std::optional<c10::Device> device_;            // of what it writes
  std::optional<c10::Device> read_device_;       // where it writes nothing: an assertion
  Ranges reads_;
  Ranges writes_;
};

void Deferred::TakeArguments(const c10::Stack& arguments) {
  for (size_t index = 0; index < arguments.size(); ++index) {
    const bool writes = Writes(operation_.schema(), arguments, index);
    const c10::IValue& argument = arguments[index];
    if (argument.isDevice()) {
      arguments_.emplace_back(c10::Device(c10::kCPU));
    } else if (argument.isGenerator()) {
      arguments_.emplace_back();
    } else {
      arguments_.push_back(WithTensors(argument, [&](const at::Tensor& tensor) {
        operands_.emplace_back(tensor, writes ? Operand::Use::kWrite : Operand::Use::kRead, &reads_, &writes_);
        NoteDevice(tensor, writes ? &device_ : &read_device_);
        if (writes && tensor.defined()) written_.insert(tensor.unsafeGetTensorImpl());
        return at::Tensor();
      }));
    }
  }
}

void Deferred::TakeResults(const c10::Stack& results) {
  const auto& declared = operation_.schema().returns();
  for (size_t index = 0; index < results.size(); ++index) {
    const bool alias = index < declared.size() && declared[index].alias_info() != nullptr;
    ForEachTensor(results[index], [&](const at::Tensor& tensor) {
      NoteDevice(tensor, &device_);
      const bool made = !alias && tensor.defined() && tensor.is_cuda() && tensor.numel() != 0 &&
                        !written_.contains(tensor.unsafeGetTensorImpl());
      results_.emplace_back();
      if (made) results_.back().emplace(tensor, Operand::Use::kWrite, &reads_, &writes_);
    });
  }
}

void Deferred::Launch(std::unique_ptr<Deferred> self) {
  if (!device_.has_value()) device_ = read_device_;
  TORCH_INTERNAL_ASSERT(device_.has_value(), name_, " touches no device");
  if (random_.has_value()) random_->AppendRanges(&reads_);
  size_t bytes = 0;
  for (const Ranges* ranges : {&reads_, &writes_}) {
    for (const commpoolEmulatorRange& range : *ranges) bytes += range.bytes;
  }
  const c10::DeviceGuard guard(*device_);
  // A new thread, of backward for one, has no context yet, although its device has the right number.
  C10_CUDA_CHECK(cudaSetDevice(device_->index()));
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(device_->index()).stream();
  const double duration_us = kLaunchMicroseconds + static_cast<double>(bytes) / kBytesEachMicrosecond;
  const commpoolEmulatorAccess access = {name_.c_str(),  reads_.data(),  reads_.size(),
                                         writes_.data(), writes_.size(), duration_us};
  const Kernels kernels = WhenKernelsRun();
  const CUresult result =
      TheEmulator().launch_kept(stream, &access, kernels == Kernels::kNone ? RunNothing : Run, self.release(), End);
  C10_CUDA_CHECK(static_cast<cudaError_t>(result));
  if (kernels != Kernels::kNow) return;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  C10_CUDA_CHECK(cudaStreamIsCapturing(stream, &status));
  if (status == cudaStreamCaptureStatusNone) C10_CUDA_CHECK(cudaStreamSynchronize(stream));
}

// An index out of range is what a device assert finds on a GPU.
void Deferred::RunOn(const void* const* reads, void* const* writes) const {
  if (PythonEnds()) return;  // and PyTorch with it
  try {
    Compute(reads, writes);
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    const bool asserted = dynamic_cast<const c10::IndexError*>(&error) != nullptr || text.find("out of") != text.npos ||
                          name_.starts_with("aten::_assert_async");
    std::fprintf(stderr, "commpool emulator: %s in %s: %s\n", asserted ? "device assert" : "failure", name_.c_str(),
                 text.c_str());
    TheEmulator().kernel_failed(asserted ? CUDA_ERROR_ASSERT : CUDA_ERROR_LAUNCH_FAILED);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "commpool emulator: failure in %s: %s\n", name_.c_str(), error.what());
    TheEmulator().kernel_failed(CUDA_ERROR_LAUNCH_FAILED);
  }
}

void Deferred::Compute(const void* const* reads, void* const* writes) const {
  const c10::InferenceMode guard;
  c10::Stack stack;
  size_t next = 0;
  for (const c10::IValue& argument : arguments_) {
    stack.push_back(WithTensors(argument, [&](const at::Tensor&) { return operands_[next++].On(reads, writes); }));
  }
  const at::Generator generator = random_.has_value() ? random_->On(reads) : at::Generator();
  RunOnCpu(operation_, kernel_, &stack, generator);
  size_t index = 0;
  for (const c10::IValue& value : stack) {
    ForEachTensor(value, [&](const at::Tensor& tensor) {
      if (index < results_.size() && results_[index].has_value() && tensor.defined()) {
        const Operand& place = *results_[index];
        const bool same = tensor.sizes() == c10::IntArrayRef(place.sizes());
        // what the CPU leaves empty nobody reads
        if (tensor.numel() != 0) place.On(reads, writes).copy_(same ? tensor : tensor.reshape(place.sizes()));
      }
      ++index;
    });
  }
}

}  // namespace

void RunOnCpu(const c10::OperatorHandle& operation, CpuKernel kernel, c10::Stack* stack,
              const at::Generator& generator) {
  const auto& declared = operation.schema().arguments();
  for (size_t index = 0; generator.defined() && index < declared.size(); ++index) {
    if (declared[index].type()->str().find("Generator") != std::string::npos) (*stack)[index] = generator;
  }
  c10::Stack before = *stack;
  try {
    Call(operation, kernel, stack, generator);
  } catch (const c10::Error& error) {
    const std::vector<LackedType> lacked = TypesLacked(error.what_without_backtrace());
    if (lacked.empty()) throw;
    *stack = std::move(before);
    CallInOtherTypes(operation, kernel, stack, generator, lacked);
  }
}

void Enqueue(const c10::OperatorHandle& operation, CpuKernel kernel, const c10::Stack& arguments,
             const c10::Stack& results, const std::optional<RandomState>& random) {
  auto deferred = std::make_unique<Deferred>(operation, kernel, random);
  deferred->TakeArguments(arguments);
  deferred->TakeResults(results);
  Deferred& launched = *deferred;
  launched.Launch(std::move(deferred));
}

}  // namespace commpool::internal::emulated_torch
