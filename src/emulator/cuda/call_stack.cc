#include "src/emulator/cuda/call_stack.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>

namespace commpool::emulator {

namespace {

constexpr int kDescribedFrames = 6;

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
  CallStack stack;
  stack.count_ = backtrace(stack.frames_.data(), kFrames);
  return stack;
}

std::string CallStack::Describe() const {
  Dl_info own = {};
  dladdr(reinterpret_cast<const void*>(&CallStack::Capture), &own);
  std::string text;
  int described = 0;
  for (int index = 0; index < count_ && described < kDescribedFrames; ++index) {
    // A return address may be the first of the next function: one byte before it is the call.
    const auto address = reinterpret_cast<uintptr_t>(frames_[static_cast<size_t>(index)]) - 1;
    Dl_info info = {};
    if (dladdr(reinterpret_cast<const void*>(address), &info) == 0 || info.dli_fbase == own.dli_fbase) continue;
    text += (described++ == 0 ? "" : " <- ") + DescribeFrame(info, address);
  }
  return text.empty() ? "an unknown place" : text;
}

}  // namespace commpool::emulator
