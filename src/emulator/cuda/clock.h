// Vector clocks: which operations of which streams came before something. Values: any thread.
//
// A component is a stream, in any process. A clock says of each component how far its work is known to have come.
#ifndef COMMPOOL_SRC_EMULATOR_CUDA_CLOCK_H_
#define COMMPOOL_SRC_EMULATOR_CUDA_CLOCK_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace commpool::internal::emulator {

// One moment of one component: what a clock covers or not.
struct Moment {
  uint64_t component = 0;
  uint64_t count = 0;
};

class Clock {
 public:
  // How far a component has come: 0 for one that is not known.
  uint64_t Of(uint64_t component) const;
  void Set(const Moment& moment);

  bool Covers(const Moment& moment) const { return Of(moment.component) >= moment.count; }
  bool Covers(const Clock& other) const;
  // Afterwards this clock covers what either of the two did.
  void Join(const Clock& other);
  bool empty() const { return entries_.empty(); }

  // As words that travel in messages. Words of any content can be read; those that mean nothing are ignored.
  std::vector<uint64_t> ToWords() const;
  static Clock FromWords(const uint64_t* words, size_t count);

 private:
  std::vector<Moment> entries_;  // sorted by component, none with count 0
};

// A stream's component, and what is known once all that it has run so far has ended.
struct StreamClock {
  uint64_t component = 0;
  Clock clock;
};

}  // namespace commpool::internal::emulator

#endif  // COMMPOOL_SRC_EMULATOR_CUDA_CLOCK_H_
