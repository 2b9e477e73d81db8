// The part of CUPTI's interface that an audit uses, as cupti_callbacks.h declares it. The header itself is no part of
// every installation of CUDA; tests compare where it is there.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace commpool::audit::cupti {

using Result = int;
constexpr Result kSuccess = 0;
constexpr Result kMultipleSubscribers = 39;
using Subscriber = struct Subscriber_st*;

constexpr int kDriverDomain = 1;  // of callbacks: the driver's functions
enum Site : int { kEnter = 0, kExit = 1 };

struct CallbackData {
  Site site;
  const char* function;
  const void* parameters;  // a struct of the function's arguments in their order
  void* result;            // on exit: what the function returns
  const char* symbol;
  CUcontext context;
  uint32_t context_number;
  uint64_t* correlation;  // ours from the enter to the exit of a call
  uint32_t correlation_number;
};

using Callback = void (*)(void* user, int domain, uint32_t function, const void* data);
using Subscribe = Result (*)(Subscriber* subscriber, Callback callback, void* user);
using EnableCallback = Result (*)(uint32_t enable, Subscriber subscriber, int domain, uint32_t function);
using GetCallbackName = Result (*)(int domain, uint32_t function, const char** name);

}  // namespace commpool::audit::cupti
