// A static object that exists before all others and is never destroyed, because programs free tensors after static
// objects are gone. The compiler makes it, so an allocation that asks for it checks nothing.
#ifndef COMMPOOL_SRC_ADAPTERS_TORCH_FOREVER_H_
#define COMMPOOL_SRC_ADAPTERS_TORCH_FOREVER_H_

namespace commpool::torch_adapter {

template <typename Object>
union Forever {
  constexpr Forever() : object() {}
  constexpr ~Forever() {}  // never destroys `object`
  Object object;
};

}  // namespace commpool::torch_adapter

#endif  // COMMPOOL_SRC_ADAPTERS_TORCH_FOREVER_H_
