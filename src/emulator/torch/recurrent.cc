#include "src/emulator/torch/recurrent.h"

#include <ATen/ATen.h>

#include "src/emulator/torch/values.h"

namespace commpool::internal::emulated_torch {

namespace {

at::Tensor Gates(const c10::Stack& stack, size_t input_bias) {
  at::Tensor gates = stack[0].toTensor() + stack[1].toTensor();
  for (const size_t index : {input_bias, input_bias + 1}) {
    const at::Tensor bias = OptionalTensor(stack[index]);
    if (bias.defined()) gates = gates + bias;
  }
  return gates;
}

}  // namespace

// The workspace is the gates after their functions.
void LstmCell(const c10::OperatorHandle&, c10::Stack* stack, const at::Generator&) {
  const at::Tensor cell = (*stack)[2].toTensor();
  const auto gates = Gates(*stack, 3).chunk(4, 1);
  const at::Tensor in = gates[0].sigmoid();
  const at::Tensor forget = gates[1].sigmoid();
  const at::Tensor candidate = gates[2].tanh();
  const at::Tensor out = gates[3].sigmoid();
  const at::Tensor next = forget * cell + in * candidate;
  *stack = {out * next.tanh(), next, at::cat({in, forget, candidate, out}, 1)};
}

void LstmCellBackward(const c10::OperatorHandle&, c10::Stack* stack, const at::Generator&) {
  const at::Tensor grad_output = OptionalTensor((*stack)[0]);
  const at::Tensor grad_cell = OptionalTensor((*stack)[1]);
  const at::Tensor cell = (*stack)[2].toTensor();
  const at::Tensor next = (*stack)[3].toTensor();
  const auto gates = (*stack)[4].toTensor().chunk(4, 1);
  const at::Tensor& in = gates[0];
  const at::Tensor& forget = gates[1];
  const at::Tensor& candidate = gates[2];
  const at::Tensor& out = gates[3];
  const at::Tensor zero = at::zeros_like(next);
  const at::Tensor from_output = grad_output.defined() ? grad_output : zero;
  const at::Tensor squashed = next.tanh();
  const at::Tensor through = from_output * out * (1 - squashed * squashed) + (grad_cell.defined() ? grad_cell : zero);
  const at::Tensor grads =
      at::cat({through * candidate * in * (1 - in), through * cell * forget * (1 - forget),
               through * in * (1 - candidate * candidate), from_output * squashed * out * (1 - out)},
              1);
  const bool has_bias = (*stack)[5].toBool();
  *stack = {grads, through * forget, has_bias ? grads.sum(0) : at::Tensor()};
}

// The workspace is what backward needs: reset, update, new gate, state, and the hidden part of the new gate.
void GruCell(const c10::OperatorHandle&, c10::Stack* stack, const at::Generator&) {
  const at::Tensor state = (*stack)[2].toTensor();
  at::Tensor from_input = (*stack)[0].toTensor();
  at::Tensor from_state = (*stack)[1].toTensor();
  if (OptionalTensor((*stack)[3]).defined()) from_input = from_input + (*stack)[3].toTensor();
  if (OptionalTensor((*stack)[4]).defined()) from_state = from_state + (*stack)[4].toTensor();
  const auto inputs = from_input.chunk(3, 1);
  const auto states = from_state.chunk(3, 1);
  const at::Tensor reset = (inputs[0] + states[0]).sigmoid();
  const at::Tensor update = (inputs[1] + states[1]).sigmoid();
  const at::Tensor fresh = (inputs[2] + reset * states[2]).tanh();
  *stack = {fresh + update * (state - fresh), at::cat({reset, update, fresh, state, states[2]}, 1)};
}

void GruCellBackward(const c10::OperatorHandle&, c10::Stack* stack, const at::Generator&) {
  const at::Tensor grad = (*stack)[0].toTensor();
  const auto saved = (*stack)[1].toTensor().chunk(5, 1);
  const at::Tensor& reset = saved[0];
  const at::Tensor& update = saved[1];
  const at::Tensor& fresh = saved[2];
  const at::Tensor grad_update = grad * (saved[3] - fresh) * update * (1 - update);
  const at::Tensor grad_fresh = grad * (1 - update) * (1 - fresh * fresh);
  const at::Tensor grad_reset = grad_fresh * saved[4] * reset * (1 - reset);
  const at::Tensor grad_inputs = at::cat({grad_reset, grad_update, grad_fresh}, 1);
  const at::Tensor grad_states = at::cat({grad_reset, grad_update, grad_fresh * reset}, 1);
  const bool has_bias = (*stack)[2].toBool();
  *stack = {grad_inputs, grad_states, grad * update, has_bias ? grad_inputs.sum(0) : at::Tensor(),
            has_bias ? grad_states.sum(0) : at::Tensor()};
}

}  // namespace commpool::internal::emulated_torch
