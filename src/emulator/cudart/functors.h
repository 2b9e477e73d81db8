// What PyTorch's functors compute, by the names that C++ gives them. Values: any thread.
#ifndef COMMPOOL_SRC_EMULATOR_CUDART_FUNCTORS_H_
#define COMMPOOL_SRC_EMULATOR_CUDART_FUNCTORS_H_

#include <optional>
#include <string_view>

#include "src/emulator/cudart/arithmetic.h"

namespace commpool::internal::emulated_cudart {

// From operands of one type, none, one or two, to a result.
struct Functor {
  std::string_view from;
  std::string_view to;
  size_t operands = 0;
  Elements compute;
};

// `held` is the functor itself, for the scalars that it holds. Nothing where it is not known.
std::optional<Functor> FunctorOf(std::string_view name, const void* held);

}  // namespace commpool::internal::emulated_cudart

#endif  // COMMPOOL_SRC_EMULATOR_CUDART_FUNCTORS_H_
