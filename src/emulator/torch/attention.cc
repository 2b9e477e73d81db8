#include "src/emulator/torch/attention.h"

#include <ATen/ATen.h>

#include <cmath>
#include <optional>

#include "src/emulator/torch/random_state.h"
#include "src/emulator/torch/values.h"

namespace commpool::internal::emulated_torch {

namespace {

constexpr int64_t kRowsOfSums = 32;   // efficient attention has so many, or a multiple
constexpr int64_t kOfGenerator = -1;  // in place of an offset: the seed is a CPU generator's

struct Attention {
  at::Tensor query;  // these three in float if they are short
  at::Tensor key;
  at::Tensor value;
  at::Tensor bias;  // undefined: none
  double dropout;
  bool causal;
  std::optional<double> scale;
};

double RootOfScale(const Attention& attention) {
  const double scale = attention.scale.value_or(1 / std::sqrt(static_cast<double>(attention.query.size(-1))));
  return std::sqrt(std::abs(scale));
}

double Sign(const Attention& attention) { return attention.scale.value_or(1) < 0 ? -1 : 1; }

// Several heads of the query may share one of the key and value.
at::Tensor ForEachHead(const at::Tensor& shared, const Attention& attention) {
  const int64_t times = attention.query.size(-3) / shared.size(-3);
  return times == 1 ? shared : shared.repeat_interleave(times, -3);
}

at::Tensor SumOfHeads(const at::Tensor& grad, const at::Tensor& shared) {
  const int64_t times = grad.size(-3) / shared.size(-3);
  return times == 1 ? grad : grad.unflatten(-3, {shared.size(-3), times}).sum(-3);
}

at::Tensor Logits(const Attention& attention) {
  const double root = RootOfScale(attention);
  const at::Tensor keys = ForEachHead(attention.key, attention).transpose(-2, -1) * root;
  at::Tensor logits = at::matmul(attention.query * (root * Sign(attention)), keys);
  if (attention.causal) {
    const at::Tensor seen = at::ones({logits.size(-2), logits.size(-1)}, logits.options().dtype(at::kBool)).tril();
    logits = logits.masked_fill(seen.logical_not(), -INFINITY);
  }
  return attention.bias.defined() ? logits.add_(attention.bias) : logits;
}

// What dropout leaves of each weight, as a factor; undefined where nothing is dropped.
at::Tensor Kept(const Attention& attention, const at::Tensor& logits, const at::Generator& generator) {
  if (attention.dropout == 0) return {};
  at::Tensor kept = at::empty_like(logits).bernoulli_(1 - attention.dropout, generator);
  return kept.mul_(1 / (1 - attention.dropout));
}

struct Output {
  at::Tensor output;
  at::Tensor sums;  // the logarithms of the rows' sums
};

Output Forward(const Attention& attention, const at::Generator& generator) {
  const at::Tensor logits = Logits(attention);
  at::Tensor weights = at::_safe_softmax(logits, -1);
  const at::Tensor kept = Kept(attention, logits, generator);
  if (kept.defined()) weights = weights * kept;
  return {at::matmul(weights, ForEachHead(attention.value, attention)), at::logsumexp(logits, -1)};
}

struct Grads {
  at::Tensor query;
  at::Tensor key;
  at::Tensor value;
  at::Tensor bias;
};

Grads Backward(const Attention& attention, const at::Tensor& grad, const at::Generator& generator) {
  const at::Tensor logits = Logits(attention);
  const at::Tensor weights = at::_safe_softmax(logits, -1);
  const at::Tensor kept = Kept(attention, logits, generator);
  at::Tensor grad_weights = at::matmul(grad, ForEachHead(attention.value, attention).transpose(-2, -1));
  if (kept.defined()) grad_weights = grad_weights * kept;
  const at::Tensor dropped = kept.defined() ? weights * kept : weights;
  const at::Tensor grad_logits = at::_softmax_backward_data(grad_weights, weights, -1, weights.scalar_type());
  const double root = RootOfScale(attention);
  const at::Tensor keys = ForEachHead(attention.key, attention) * root;
  const at::Tensor queries = attention.query * (root * Sign(attention));
  const at::Tensor grad_keys = (at::matmul(queries.transpose(-2, -1), grad_logits) * root).transpose(-2, -1);
  return {at::matmul(grad_logits, keys) * (root * Sign(attention)), SumOfHeads(grad_keys, attention.key),
          SumOfHeads(at::matmul(dropped.transpose(-2, -1), grad), attention.value),
          attention.bias.defined() ? grad_logits : at::Tensor()};
}

std::optional<double> Scale(const c10::IValue& value) {
  return value.isNone() ? std::nullopt : std::optional<double>(value.toDouble());
}

int64_t SeedOf(const at::Generator& generator) {
  return generator.defined() ? static_cast<int64_t>(generator.current_seed()) : 0;
}

at::Generator GeneratorOf(int64_t seed, int64_t offset) {
  return offset == kOfGenerator ? GeneratorOfSeed(static_cast<uint64_t>(seed))
                                : GeneratorAt(static_cast<uint64_t>(seed), static_cast<uint64_t>(offset));
}

}  // namespace

void FlashAttention(const c10::OperatorHandle&, c10::Stack* stack, const at::Generator& generator) {
  const c10::Stack& given = *stack;
  const Attention attention = {Wide(given[0].toTensor()),
                               Wide(given[1].toTensor()),
                               Wide(given[2].toTensor()),
                               at::Tensor(),
                               given[3].toDouble(),
                               given[4].toBool(),
                               Scale(given[6])};
  const Output made = Forward(attention, generator);
  const at::Tensor state = at::tensor({SeedOf(generator), kOfGenerator}, at::kLong);
  *stack = {made.output, made.sums,    at::Tensor(), at::Tensor(), attention.query.size(-2), attention.key.size(-2),
            state,       at::Tensor(), at::Tensor()};
}

void FlashAttentionBackward(const c10::OperatorHandle&, c10::Stack* stack, const at::Generator&) {
  const c10::Stack& given = *stack;
  const Attention attention = {
      Wide(given[1].toTensor()), Wide(given[2].toTensor()), Wide(given[3].toTensor()), at::Tensor(),
      given[10].toDouble(),      given[11].toBool(),        Scale(given[14])};
  at::Generator generator;
  if (attention.dropout != 0) {
    const at::Tensor state = given[12].toTensor().view(at::kLong);
    generator = GeneratorOf(state[0].item<int64_t>(), state[1].item<int64_t>());
  }
  const Grads grads = Backward(attention, Wide(given[0].toTensor()), generator);
  *stack = {grads.query, grads.key, grads.value};
}

void EfficientAttention(const c10::OperatorHandle&, c10::Stack* stack, const at::Generator& generator) {
  const c10::Stack& given = *stack;
  const Attention attention = {Wide(given[0].toTensor()),
                               Wide(given[1].toTensor()),
                               Wide(given[2].toTensor()),
                               OptionalTensor(given[3]),
                               given[5].toDouble(),
                               given[6].toBool(),
                               Scale(given[7])};
  const Output made = Forward(attention, generator);
  const int64_t rows = made.sums.size(-1);
  const at::Tensor sums = given[4].toBool()
                              ? at::constant_pad_nd(made.sums, {0, (kRowsOfSums - rows % kRowsOfSums) % kRowsOfSums})
                              : made.sums.narrow(-1, 0, 0);
  *stack = {made.output, sums, at::scalar_tensor(SeedOf(generator), at::kLong),
            at::scalar_tensor(kOfGenerator, at::kLong)};
}

void EfficientAttentionBackward(const c10::OperatorHandle&, c10::Stack* stack, const at::Generator&) {
  const c10::Stack& given = *stack;
  const Attention attention = {Wide(given[1].toTensor()), Wide(given[2].toTensor()), Wide(given[3].toTensor()),
                               OptionalTensor(given[4]),  given[9].toDouble(),       given[11].toBool(),
                               Scale(given[12])};
  at::Generator generator;
  if (attention.dropout != 0) {
    generator = GeneratorOf(given[7].toTensor().item<int64_t>(), given[8].toTensor().item<int64_t>());
  }
  const Grads grads = Backward(attention, Wide(given[0].toTensor()), generator);
  *stack = {grads.query, grads.key, grads.value, grads.bias};
}

}  // namespace commpool::internal::emulated_torch
