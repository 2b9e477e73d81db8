#include "src/library/base/native_stack.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <sys/auxv.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

namespace commpool::internal {

namespace {

constexpr int kMostFrames = 32;
constexpr int kMostTold = 12;

// Where the file that holds an address begins in memory; null where no file holds it.
const void* BaseOf(const void* address) {
  Dl_info info = {};
  return dladdr(address, &info) == 0 ? nullptr : info.dli_fbase;
}

// The library whose frames say nothing of the program; null where it is a part of the program itself.
const void* OwnBase() {
  const void* const own = BaseOf(reinterpret_cast<const void*>(&NativeStack));
  const void* const program = BaseOf(reinterpret_cast<const void*>(getauxval(AT_ENTRY)));  // NOLINT
  return own == program ? nullptr : own;
}

std::string NameOf(const char* symbol) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(abi::__cxa_demangle(symbol, nullptr, nullptr, &status), std::free);
  return status == 0 ? name.get() : symbol;
}

std::string Describe(const void* address, const Dl_info& info) {
  const std::string path = info.dli_fname == nullptr ? "" : info.dli_fname;
  const std::string file = path.substr(path.rfind('/') + 1);
  if (info.dli_sname != nullptr) return NameOf(info.dli_sname) + " (" + file + ")";
  char offset[32];
  std::snprintf(offset, sizeof(offset), "+0x%zx",
                static_cast<size_t>(static_cast<const char*>(address) - static_cast<const char*>(info.dli_fbase)));
  return file + offset;
}

}  // namespace

std::string NativeStack() {
  static const void* const own = OwnBase();
  void* frames[kMostFrames];
  const int count = backtrace(frames, kMostFrames);
  std::string text;
  int told = 0;
  for (int frame = 1; frame < count && told < kMostTold; ++frame) {
    const void* const call = static_cast<const char*>(frames[frame]) - 1;  // before the address of return
    Dl_info info = {};
    if (dladdr(call, &info) == 0 || info.dli_fbase == own) continue;
    text += (told++ == 0 ? "" : "\n") + Describe(call, info);
  }
  return text;
}

}  // namespace commpool::internal
