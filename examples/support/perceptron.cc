#include "examples/support/perceptron.h"

#include <cmath>
#include <random>

#include "examples/support/device.h"

namespace examples {

namespace {

constexpr int kHidden = 16;
constexpr int kParameters = 3 * kHidden + 1;  // w, b, v and c
constexpr float kPi = 3.14159265f;

// Adds a sample's part to the gradients, and its squared error behind them.
void AddSample(const Sample& sample, float share, const float* parameters, float* gradients) {
  const float* w = parameters;
  const float* b = w + kHidden;
  const float* v = b + kHidden;
  float hidden[kHidden];
  float error = parameters[3 * kHidden] - sample.y;
  for (int unit = 0; unit < kHidden; ++unit) {
    hidden[unit] = std::tanh(w[unit] * sample.x + b[unit]);
    error += v[unit] * hidden[unit];
  }
  const float slope = 2 * share * error;
  for (int unit = 0; unit < kHidden; ++unit) {
    const float inner = slope * v[unit] * (1 - hidden[unit] * hidden[unit]);
    gradients[unit] += inner * sample.x;
    gradients[kHidden + unit] += inner;
    gradients[2 * kHidden + unit] += slope * hidden[unit];
  }
  gradients[3 * kHidden] += slope;
  gradients[kParameters] += share * error * error;
}

}  // namespace

std::vector<Sample> SamplesOfTheSine(int rank, int count) {
  std::mt19937 generator(static_cast<unsigned>(rank + 1));
  std::uniform_real_distribution<float> uniform(-kPi, kPi);
  std::vector<Sample> samples(static_cast<size_t>(count));
  for (Sample& sample : samples) {
    sample.x = uniform(generator);
    sample.y = std::sin(sample.x);
  }
  return samples;
}

Perceptron::Perceptron(const std::vector<Sample>& samples, CUstream stream) : samples_(samples), stream_(stream) {
  std::mt19937 generator(7);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> initial(kParameters);
  for (float& value : initial) value = uniform(generator);
  parameters_ = commpool::allocate(kParameters * sizeof(float), stream).value();
  Upload(initial, parameters_, stream_);
}

commpool::Buffer Perceptron::backward() {
  commpool::Buffer gradients = commpool::allocate(gradient_count() * sizeof(float), stream_).value();
  const std::vector<float> parameters = Download(parameters_, stream_);
  std::vector<float> sums(gradient_count(), 0.0f);
  const float share = 1.0f / static_cast<float>(samples_.size());
  for (const Sample& sample : samples_) AddSample(sample, share, parameters.data(), sums.data());
  Upload(sums, gradients, stream_);
  return gradients;
}

void Perceptron::update(const commpool::Buffer& gradients, float factor) {
  const std::vector<float> slopes = Download(gradients, stream_);
  std::vector<float> parameters = Download(parameters_, stream_);
  for (size_t index = 0; index < parameters.size(); ++index) parameters[index] -= factor * slopes[index];
  Upload(parameters, parameters_, stream_);
}

size_t Perceptron::gradient_count() const { return kParameters + 1; }

}  // namespace examples
