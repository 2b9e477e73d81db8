// Option<T>: the value of an option, and whether the program gave it.
//
//   options.limit_bytes = GiB(2);   // given: COMMPOOL_CONF cannot change it, also where it is the default's value
//
// A value: any thread may read one that no other thread writes.
#ifndef COMMPOOL_OPTION_H_
#define COMMPOOL_OPTION_H_

#include <utility>

namespace commpool {
inline namespace v1 {

template <typename T>
class Option {
 public:
  constexpr Option(T value) : value_(std::move(value)) {}  // NOLINT: a value is an option
  // The default, which the program has not changed.
  static constexpr Option unset(T value) {
    Option option(std::move(value));
    option.given_ = false;
    return option;
  }

  constexpr operator T() const { return value_; }  // NOLINT: an option is a value
  constexpr bool given() const { return given_; }

 private:
  T value_;
  bool given_ = true;
};

}  // namespace v1
}  // namespace commpool

#endif  // COMMPOOL_OPTION_H_
