// Other people's model: it knows no pool, and allocates its gradients where backward() needs them.
//
// y = v . tanh(w x + b) + c for one number x; it learns the sine. It computes on the host, with copies of the device's
// data, so it needs no CUDA compiler: slow, and the same on every machine. One thread uses it.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <vector>

#include "commpool/buffer.h"

namespace examples {

struct Sample {
  float x = 0;
  float y = 0;
};

// Each rank has its own part of the data.
std::vector<Sample> SamplesOfTheSine(int rank, int count);

class Perceptron {
 public:
  // The same parameters on every rank. `samples` must stay where it is while the stream has work.
  Perceptron(const std::vector<Sample>& samples, CUstream stream);

  // The gradients of the mean squared error, followed by the error itself.
  commpool::Buffer backward();
  // parameters -= factor * gradients
  void update(const commpool::Buffer& gradients, float factor);

  size_t gradient_count() const;
  const commpool::Buffer& parameters() const { return parameters_; }

 private:
  const std::vector<Sample>& samples_;
  CUstream stream_;
  commpool::Buffer parameters_;
};

}  // namespace examples
