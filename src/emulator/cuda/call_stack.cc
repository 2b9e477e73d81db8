#include "src/emulator/cuda/call_stack.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <unwind.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

namespace commpool::emulator {

namespace {

constexpr size_t kFrames = CallStack::kFrames;
constexpr int kDescribedFrames = 6;
constexpr size_t kCachedWalks = 64;  // a thread
constexpr uintptr_t kNearBytes = 256 << 10;

// An unwound stack, and where on it the return addresses stand. Unwinding takes microseconds, but a program issues its
// operations from few places: where the same frame finds every address in its old place, the stack is the same.
struct Walk {
  const void* frame = nullptr;  // of Capture
  std::array<void*, kFrames> addresses = {};
  std::array<void* const*, kFrames> places = {};
  size_t count = 0;
};

_Unwind_Reason_Code AddFrame(_Unwind_Context* context, void* argument) {
  Walk& walk = *static_cast<Walk*>(argument);
  void* const address = reinterpret_cast<void*>(_Unwind_GetIP(context));
  if (walk.count == kFrames || address == nullptr) return _URC_END_OF_STACK;
  walk.addresses[walk.count] = address;
  walk.places[walk.count] = reinterpret_cast<void* const*>(_Unwind_GetCFA(context)) - 1;
  ++walk.count;
  return _URC_NO_REASON;
}

// The first address is Capture's own and on no stack.
bool IsStill(const Walk& walk, const void* frame) {
  if (walk.frame != frame || walk.count < 2) return false;
  for (size_t index = 1; index < walk.count; ++index) {
    if (*walk.places[index] != walk.addresses[index]) return false;
  }
  return true;
}

// Not where a machine keeps return addresses elsewhere, nor where the stack continues on another one.
bool CanBeRecognised(const Walk& walk) {
  for (size_t index = 1; index < walk.count; ++index) {
    const auto distance = reinterpret_cast<uintptr_t>(walk.places[index]) - reinterpret_cast<uintptr_t>(walk.frame);
    if (distance > kNearBytes || *walk.places[index] != walk.addresses[index]) return false;
  }
  return true;
}

std::string Demangled(const char* symbol) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(abi::__cxa_demangle(symbol, nullptr, nullptr, &status),
                                                         &std::free);
  return status == 0 && name != nullptr ? name.get() : symbol;
}

std::string DescribeFrame(const Dl_info& info, uintptr_t address) {
  const std::string file = info.dli_fname == nullptr ? "?" : info.dli_fname;
  char offset[32];
  std::snprintf(offset, sizeof(offset), "+0x%llx",
                static_cast<unsigned long long>(address - reinterpret_cast<uintptr_t>(info.dli_fbase)));
  const std::string place = file.substr(file.rfind('/') + 1) + offset;
  return info.dli_sname == nullptr ? place : Demangled(info.dli_sname) + " (" + place + ")";
}

}  // namespace

CallStack CallStack::Capture() {
  thread_local std::vector<Walk> cache(kCachedWalks);
  const void* const frame = __builtin_frame_address(0);
  const auto key = reinterpret_cast<uintptr_t>(frame) ^ reinterpret_cast<uintptr_t>(__builtin_return_address(0));
  Walk& walk = cache[(key >> 4) % kCachedWalks];
  if (!IsStill(walk, frame)) {
    walk.count = 0;
    walk.frame = frame;
    _Unwind_Backtrace(&AddFrame, &walk);
    if (!CanBeRecognised(walk)) walk.frame = nullptr;
  }
  CallStack stack;
  stack.addresses_ = walk.addresses;
  stack.count_ = walk.count;
  return stack;
}

std::string CallStack::Describe() const {
  Dl_info own = {};
  dladdr(reinterpret_cast<const void*>(&CallStack::Capture), &own);
  std::string text;
  int described = 0;
  for (size_t index = 0; index < count_ && described < kDescribedFrames; ++index) {
    // A return address may be the first of the next function: one byte before it is the call.
    const auto address = reinterpret_cast<uintptr_t>(addresses_[index]) - 1;
    Dl_info info = {};
    if (dladdr(reinterpret_cast<const void*>(address), &info) == 0 || info.dli_fbase == own.dli_fbase) continue;
    text += (described++ == 0 ? "" : " <- ") + DescribeFrame(info, address);
  }
  return text.empty() ? "an unknown place" : text;
}

}  // namespace commpool::emulator
