// FunctionRef: a parameter type for functions. The caller keeps the function alive until its call has returned, so a
// FunctionRef, unlike std::function, never allocates. A value: two pointers.
#pragma once

#include <concepts>
#include <utility>

namespace commpool::internal {

template <typename Signature>
class FunctionRef;

template <typename Answer, typename... Arguments>
class FunctionRef<Answer(Arguments...)> {
 public:
  FunctionRef() = default;
  // REQUIRES: `function` lives until the last call of this object.
  template <std::invocable<Arguments...> Function>
  FunctionRef(const Function& function)
      : function_(&function), call_([](const void* known, Arguments... arguments) -> Answer {
          return (*static_cast<const Function*>(known))(std::forward<Arguments>(arguments)...);
        }) {}

  explicit operator bool() const { return call_ != nullptr; }
  Answer operator()(Arguments... arguments) const { return call_(function_, std::forward<Arguments>(arguments)...); }

 private:
  const void* function_ = nullptr;
  Answer (*call_)(const void*, Arguments...) = nullptr;
};

}  // namespace commpool::internal
