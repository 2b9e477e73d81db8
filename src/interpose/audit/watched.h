// The functions that an audit stands in front of, each with the library's own one behind it. Any thread.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstddef>
#include <exception>
#include <functional>
#include <span>

#include "src/interpose/audit/event.h"

namespace commpool::audit {

struct Watched {
  const char* symbol;
  const char* name;  // for cuGetProcAddress; null for others
  int since;         // likewise
  void* ours;
  // For CUPTI, which hands over a call's arguments as a struct: the account, before and after the call.
  void (*before)(Event&, const void*) = nullptr;
  void (*after)(Event&, const void*) = nullptr;
  std::atomic<void*> real = nullptr;
};

// All of them, in the order of audited_functions.inc and then NCCL's.
std::span<Watched> AllWatched();
// Null for a symbol that is not watched.
Watched* FindWatched(const char* symbol);

// The library's own function; looked for at the first call where nobody has asked for it by name before. May be null.
void* RealOf(Watched& watched);

// The variant of cuGetProcAddress before CUDA 12, which cuda.h does not declare any more (entry_points.cc).
void* EarlierGetProcAddress();

// What a program gets that looked a watched function up: ours, with `found` behind it. A second library with the same
// functions takes its place as long as no driver has been initialised, for then the first has not worked; after that
// its functions stay as they are.
void* InPlaceOf(Watched& watched, void* found);

// The call once more, where room could be made for it on the device (room/ask.h). kCurrentDevice: the calling thread's.
CUresult MakeAgain(const Watched& watched, int device, const std::function<CUresult()>& make);

// Keeps the books from throwing into a program's call.
template <typename Work>
void Quietly(const Work& work) noexcept {
  try {
    work();
  } catch (const std::exception&) {  // no memory: one call is missing from the books
  }
}

}  // namespace commpool::audit
