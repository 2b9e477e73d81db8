// Vector clocks: which operations of which streams came before something. They are values: any thread may use one.
//
// A component is one stream of one process. For each component a clock says how much of its work has surely ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace commpool::internal::emulator {

// One moment of one component. A clock covers it or does not.
struct Moment {
  uint64_t component = 0;
  uint64_t count = 0;
};

// Owns one entry for each component that it knows. The race checker and the scheduler make clocks and join them.
class Clock {
 public:
  // Returns how far a component has come; 0 if the clock does not know it.
  uint64_t Of(uint64_t component) const;
  void Set(const Moment& moment);

  bool Covers(const Moment& moment) const { return Of(moment.component) >= moment.count; }
  bool Covers(const Clock& other) const;
  // Afterwards this clock covers what either clock covered.
  void Join(const Clock& other);
  bool empty() const { return entries_.empty(); }

  // Turns the clock into words for a message, and back. Any words can be read: invalid ones are ignored.
  std::vector<uint64_t> ToWords() const;
  static Clock FromWords(const uint64_t* words, size_t count);

 private:
  std::vector<Moment> entries_;  // sorted by component; no count is 0
};

// The component of a stream, and the clock after all its finished work.
struct StreamClock {
  uint64_t component = 0;
  Clock clock;
};

}  // namespace commpool::internal::emulator
