// What PyTorch's functors compute; C++ names identify them. They are values: any thread.
#ifndef COMMPOOL_SRC_EMULATOR_CUDART_FUNCTORS_H_
#define COMMPOOL_SRC_EMULATOR_CUDART_FUNCTORS_H_

#include <optional>
#include <string_view>

#include "src/emulator/cudart/arithmetic.h"

namespace commpool::internal::emulated_cudart {

// Computes a result from zero, one or two operands of one type.
struct Functor {
  std::string_view from;
  std::string_view to;
  size_t operands = 0;
  Elements compute;
};

// `held` points to the functor, which holds the scalars. Returns nothing if the functor is unknown.
std::optional<Functor> FunctorOf(std::string_view name, const void* held);

}  // namespace commpool::internal::emulated_cudart

#endif  // COMMPOOL_SRC_EMULATOR_CUDART_FUNCTORS_H_
