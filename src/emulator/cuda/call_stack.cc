#include "src/emulator/cuda/call_stack.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <unwind.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "src/emulator/cuda/function_names.h"
#include "src/library/base/of_this_thread.h"

namespace commpool::internal::emulator {

namespace {

constexpr size_t kFrames = 40;  // the driver and NCCL take up to fifteen of them, and commpool's library as many
constexpr int kDescribedFrames = 4;
constexpr size_t kCachedWalks = 64;  // for each thread
constexpr uintptr_t kNearBytes = 256 << 10;

}  // namespace

// A stack that was unwound, and where its return addresses lie. Unwinding takes microseconds, and a program issues
// operations from few places. So a stack with the same frame and the same addresses at the same places is not unwound
// again.
struct CallStack::Walk {
  const void* frame = nullptr;  // the frame of Capture; null: this walk cannot be recognised
  std::array<void*, kFrames> addresses = {};
  std::array<void* const*, kFrames> places = {};
  size_t count = 0;
};

namespace {

using Walk = CallStack::Walk;
using Walks = std::array<std::shared_ptr<const Walk>, kCachedWalks>;

_Unwind_Reason_Code AddFrame(_Unwind_Context* context, void* argument) {
  Walk& walk = *static_cast<Walk*>(argument);
  void* const address = reinterpret_cast<void*>(_Unwind_GetIP(context));
  if (walk.count == kFrames || address == nullptr) return _URC_END_OF_STACK;
  walk.addresses[walk.count] = address;
  walk.places[walk.count] = reinterpret_cast<void* const*>(_Unwind_GetCFA(context)) - 1;
  ++walk.count;
  return _URC_NO_REASON;
}

// Skips the first address: it is Capture's own, and lies on no stack. Return addresses lie beside what AddressSanitizer
// guards, and once a frame is gone another's guards lie there.
[[gnu::no_sanitize_address]] bool IsStill(const Walk& walk, const void* frame) {
  if (walk.frame != frame || walk.count < 2) return false;
  for (size_t index = 1; index < walk.count; ++index) {
    if (*walk.places[index] != walk.addresses[index]) return false;
  }
  return true;
}

// Returns false if the machine keeps return addresses elsewhere, or if the stack continues on another stack.
[[gnu::no_sanitize_address]] bool CanBeRecognised(const Walk& walk) {
  for (size_t index = 1; index < walk.count; ++index) {
    const auto distance = reinterpret_cast<uintptr_t>(walk.places[index]) - reinterpret_cast<uintptr_t>(walk.frame);
    if (distance > kNearBytes || *walk.places[index] != walk.addresses[index]) return false;
  }
  return true;
}

// A return address as text.
struct StackFrame {
  uintptr_t address = 0;
  Dl_info module = {};
  std::string symbol;  // mangled; empty: unknown

  explicit StackFrame(void* returns_to) : address(reinterpret_cast<uintptr_t>(returns_to) - 1) {
    // The call is one byte before the return address. The address itself may already be in the next function.
    if (dladdr(reinterpret_cast<const void*>(address), &module) != 0) symbol = FunctionAt(address, module);
  }
};

// Says whether this is a template of the standard library. Those tell a reader nothing about the program.
bool IsStandard(const std::string& symbol) {
  return symbol.starts_with("_ZSt") || symbol.starts_with("_ZNSt") || symbol.starts_with("_ZNKSt");
}

// Leaves the parameters out: they are long, and the place identifies the function.
std::string Demangled(const std::string& symbol) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> whole(
      abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status), &std::free);
  if (status != 0 || whole == nullptr) return symbol;
  const std::string name = whole.get();
  size_t open = name.rfind(')');
  for (int depth = 0; open < name.size(); --open) {
    depth += name[open] == ')' ? 1 : name[open] == '(' ? -1 : 0;
    if (depth == 0) break;
  }
  return name.substr(0, open);
}

std::string Describe(const StackFrame& frame) {
  const std::string file = frame.module.dli_fname == nullptr ? "?" : frame.module.dli_fname;
  char offset[32];
  std::snprintf(offset, sizeof(offset), "+0x%llx",
                static_cast<unsigned long long>(frame.address - reinterpret_cast<uintptr_t>(frame.module.dli_fbase)));
  const std::string place = file.substr(file.rfind('/') + 1) + offset;
  return frame.symbol.empty() ? place : Demangled(frame.symbol) + " (" + place + ")";
}

bool IsIn(const StackFrame& frame, const char* library) {
  return frame.module.dli_fname != nullptr && std::strstr(frame.module.dli_fname, library) != nullptr;
}

// Whose function that is, if it is one that asks for itself.
std::optional<Asker> AskerAt(void* address) {
  const StackFrame frame(address);
  const auto names = [&](const char* word) { return frame.symbol.find(word) != std::string::npos; };
  const bool of_group = names("Watchdog") || names("FlightRecorder") || names("WorkNCCLQueue");
  if (IsIn(frame, "libcommpool.so")) return Asker::kPools;
  if (names("CachingAllocator") || names("CachingHostAllocator")) return Asker::kAllocator;
  return of_group && names("c10d") ? std::optional(Asker::kProcessGroup) : std::nullopt;
}

// Says whether the program did not call this function itself. Of the emulated NCCL, the emulated runtime and commpool's
// library a report shows only the function that the program called.
bool IsInsideLibrary(const StackFrame& frame) {
  const auto inside = [&](const char* library, std::string_view interface) {
    return IsIn(frame, library) && !frame.symbol.starts_with(interface);
  };
  return inside("libnccl.so", "nccl") || inside("libcudart.so", "cuda") || inside("libcommpool.so", "commpool_");
}

}  // namespace

CallStack CallStack::Capture() {
  Walks* const cache = OfThisThread<Walks, CallStack>();
  if (cache == nullptr) return CallStack();  // the thread is ending
  const void* const frame = __builtin_frame_address(0);
  const auto key = reinterpret_cast<uintptr_t>(frame) ^ reinterpret_cast<uintptr_t>(__builtin_return_address(0));
  std::shared_ptr<const Walk>& known = (*cache)[(key >> 4) % kCachedWalks];
  if (known == nullptr || !IsStill(*known, frame)) {
    auto walk = std::make_shared<Walk>();
    walk->frame = frame;
    _Unwind_Backtrace(&AddFrame, walk.get());
    if (!CanBeRecognised(*walk)) walk->frame = nullptr;
    known = std::move(walk);
  }
  CallStack stack;
  stack.walk_ = known;
  return stack;
}

std::string CallStack::Describe() const {
  Dl_info own = {};
  dladdr(reinterpret_cast<const void*>(&CallStack::Capture), &own);
  std::string text;
  int described = 0;
  for (size_t index = 0; walk_ != nullptr && index < walk_->count && described < kDescribedFrames; ++index) {
    const StackFrame frame(walk_->addresses[index]);
    if (frame.module.dli_fbase == own.dli_fbase || IsStandard(frame.symbol) || IsInsideLibrary(frame)) continue;
    text += (described++ == 0 ? "" : " <- ") + emulator::Describe(frame);
    if (frame.symbol == "main") break;
  }
  return text.empty() ? "an unknown place" : text;
}

bool CallStack::IsOf(Asker asker) const {
  static auto* const known = new std::unordered_map<void*, std::optional<Asker>>;  // by return address
  return walk_ != nullptr && std::any_of(walk_->addresses.begin(), walk_->addresses.end(), [&](void* address) {
           const auto [entry, fresh] = known->try_emplace(address);
           if (fresh) entry->second = AskerAt(address);
           return entry->second == asker;
         });
}

}  // namespace commpool::internal::emulator
