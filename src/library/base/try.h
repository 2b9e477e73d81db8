// COMMPOOL_TRY hands a failure on to the caller, for steps that have nothing to undo:
//
//   const int count = COMMPOOL_TRY(DeviceCount(driver));  // of a Result: its value
//   COMMPOOL_TRY(CheckDevice(device));                    // of a Status: nothing
//
// It returns from the surrounding function. Write it alone or right of an `=`, never inside an expression: the
// temporaries of the expression would not be destroyed.
#pragma once

#include <utility>

#include "commpool/status.h"
#include "src/library/base/failure.h"

namespace commpool::internal {

inline Status FailureOf(Status&& tried) { return std::move(tried); }
inline void ValueOf(Status&&) {}

template <typename T>
Status FailureOf(Result<T>&& tried) {
  return std::move(tried).status();
}
template <typename T>
T ValueOf(Result<T>&& tried) {
  return std::move(*tried);
}

// For steps that all are made, whatever fails: `first` keeps the first failure.
inline void KeepFirst(Status& first, Status next) {
  if (first.ok()) first = std::move(next);
}

// Acts on each, also after a failure, and returns the first failure.
template <typename Range, typename Act>
Status FirstFailureOf(Range&& range, Act act) {
  Status first;
  for (auto&& one : range) KeepFirst(first, act(one));
  return first;
}

}  // namespace commpool::internal

#define COMMPOOL_TRY(...)                                                                        \
  __extension__({                                                                                \
    auto commpool_tried = __VA_ARGS__;                                                           \
    if (!commpool_tried.ok()) return ::commpool::internal::FailureOf(std::move(commpool_tried)); \
    ::commpool::internal::ValueOf(std::move(commpool_tried));                                    \
  })
