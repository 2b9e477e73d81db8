#include "src/emulator/torch/at_once.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>

#include <utility>
#include <vector>

#include "src/emulator/torch/values.h"

namespace commpool::internal::emulated_torch {

namespace {

struct Written {
  at::Tensor device;
  at::Tensor host;
};

at::Tensor OnDevice(const at::Tensor& host, c10::Device device) {
  if (!host.defined() || host.is_cuda()) return host;
  if (host.layout() != at::kStrided || host.is_nested()) return host.to(device);
  at::Tensor made = at::empty_strided(host.sizes(), host.strides(), host.options().device(device));
  made.copy_(host);
  return made;
}

c10::Stack OnHost(const c10::OperatorHandle& operation, const c10::Stack& arguments, std::vector<Written>* written) {
  c10::Stack stack;
  for (size_t index = 0; index < arguments.size(); ++index) {
    const c10::IValue& argument = arguments[index];
    if (argument.isDevice()) {
      stack.emplace_back(c10::Device(c10::kCPU));
    } else if (argument.isGenerator()) {
      stack.emplace_back();
    } else {
      stack.push_back(WithTensors(argument, [&](const at::Tensor& tensor) {
        if (!tensor.defined() || !tensor.is_cuda()) return tensor;
        at::Tensor host = (tensor.is_nested() ? tensor.contiguous() : tensor).cpu();
        if (Writes(operation.schema(), arguments, index)) written->push_back({tensor, host});
        return host;
      }));
    }
  }
  return stack;
}

}  // namespace

void RunAtOnce(const c10::OperatorHandle& operation, CpuKernel kernel, const c10::Stack& arguments,
               const std::optional<RandomState>& random, c10::Device device, c10::Stack* stack) {
  TORCH_CHECK(c10::cuda::currentStreamCaptureStatusMayInitCtx() == c10::cuda::CaptureStatus::None,
              "operation not permitted when stream is capturing: the emulator runs ", operation.operator_name(),
              " at once");
  const c10::DeviceGuard guard(device);
  std::vector<Written> written;
  c10::Stack values = OnHost(operation, arguments, &written);
  RunOnCpu(operation, kernel, &values, random.has_value() ? random->On(nullptr) : at::Generator());
  for (const Written& one : written) {
    if (one.device.sizes() != one.host.sizes()) one.device.resize_(one.host.sizes());
    one.device.copy_(one.host);
  }
  for (c10::IValue& value : values) {
    stack->push_back(WithTensors(value, [&](const at::Tensor& tensor) {
      for (const Written& one : written) {
        if (tensor.is_same(one.host)) return one.device;
      }
      return OnDevice(tensor, device);
    }));
  }
}

}  // namespace commpool::internal::emulated_torch
