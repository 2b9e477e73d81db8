#include "src/emulator/torch/random_state.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>

#include <mutex>
#include <string>

namespace commpool::internal::emulated_torch {

namespace {

uint64_t Mixed(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

at::Generator GeneratorOf(const c10::Stack& arguments, c10::DeviceIndex device) {
  for (const c10::IValue& argument : arguments) {
    if (argument.isGenerator() && argument.toGenerator().device().is_cuda()) return argument.toGenerator();
  }
  return at::cuda::detail::getDefaultCUDAGenerator(device);
}

}  // namespace

at::Generator GeneratorOfSeed(uint64_t seed) { return at::make_generator<at::CPUGeneratorImpl>(seed); }

at::Generator GeneratorAt(uint64_t seed, uint64_t offset) { return GeneratorOfSeed(Mixed(seed + Mixed(offset + 1))); }

bool Draws(const c10::OperatorHandle& operation) {
  for (const char* const name : {"aten::native_dropout", "aten::_scaled_dot_product_flash_attention",
                                 "aten::_scaled_dot_product_efficient_attention"}) {
    if (operation.schema().name() == name) return true;
  }
  for (const c10::Argument& argument : operation.schema().arguments()) {
    if (argument.type()->str().find("Generator") != std::string::npos) return true;
  }
  return false;
}

RandomState::RandomState(const c10::Stack& arguments, c10::DeviceIndex device) {
  at::Generator generator = GeneratorOf(arguments, device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  const at::PhiloxCudaState state = at::check_generator<at::CUDAGeneratorImpl>(generator)->philox_cuda_state(0);
  captured_ = state.captured_;
  offset_in_graph_ = state.offset_intragraph_;
  seed_ = captured_ ? reinterpret_cast<uint64_t>(state.seed_.ptr) : state.seed_.val;
  offset_ = captured_ ? reinterpret_cast<uint64_t>(state.offset_.ptr) : state.offset_.val;
}

void RandomState::AppendRanges(Ranges* reads) {
  if (!captured_) return;
  first_ = reads->size();
  reads->push_back({seed_, sizeof(int64_t)});
  reads->push_back({offset_, sizeof(int64_t)});
}

at::Generator RandomState::On(const void* const* reads) const {
  uint64_t seed = seed_;
  uint64_t offset = offset_ + offset_in_graph_;
  if (captured_) {
    seed = static_cast<uint64_t>(*static_cast<const int64_t*>(reads[first_]));
    offset = static_cast<uint64_t>(*static_cast<const int64_t*>(reads[first_ + 1])) + offset_in_graph_;
  }
  return GeneratorAt(seed, offset);
}

}  // namespace commpool::internal::emulated_torch
