// A static object that is there before everything and outlives everything: tensors are freed after static objects are
// gone. It is made at compile time, so an allocation that asks for it checks nothing.
#ifndef COMMPOOL_SRC_ADAPTERS_TORCH_FOREVER_H_
#define COMMPOOL_SRC_ADAPTERS_TORCH_FOREVER_H_

namespace commpool::torch_adapter {

template <typename Object>
union Forever {
  constexpr Forever() : object() {}
  constexpr ~Forever() {}  // the object's is never run
  Object object;
};

}  // namespace commpool::torch_adapter

#endif  // COMMPOOL_SRC_ADAPTERS_TORCH_FOREVER_H_
