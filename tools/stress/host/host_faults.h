// Lets the nth thread start or descriptor fail that the library asks for in its own calls.
//
// The program that links this gets its own pthread_create and calls that make descriptors. They count and fail only on
// threads that are Inside, and on threads that those start. The emulated driver runs Outside. Any thread.
#pragma once

#include <cstdint>

namespace commpool::cli {

enum class HostResource { kThread, kDescriptor };

// Whether the fault's stack goes to stderr.
enum class Place { kUntold, kTold };

class HostFaults {
 public:
  // From now on only the `nth` request fails; 0 only counts. Called once, before any thread is Inside.
  static void Plan(HostResource resource, uint64_t nth, Place place);
  static uint64_t count();
  static bool fired();

  // While it lives the thread is in a call of the library.
  class [[nodiscard]] Inside {
   public:
    Inside();
    ~Inside();
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;
  };

  // While it lives the thread is in code that the library calls, whose requests do not count.
  class [[nodiscard]] Outside {
   public:
    Outside();
    ~Outside();
    Outside(const Outside&) = delete;
    Outside& operator=(const Outside&) = delete;

   private:
    const bool was_inside_;
  };
};

}  // namespace commpool::cli
