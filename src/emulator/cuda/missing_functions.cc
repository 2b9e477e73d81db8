// Exports the functions that the emulator lacks. A program may link them; a call ends the process and names the
// function.
#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop

#include <cstdio>
#include <cstdlib>

// cuda.h maps the plain name to a versioned one, so the stub spells the exported name itself. Under the plain name it
// would need the parameters.
#define COMMPOOL_TEXT_OF(name) #name
#define COMMPOOL_TEXT(name) COMMPOOL_TEXT_OF(name)

namespace commpool::internal::emulator::missing {

namespace {

[[noreturn]] void End(const char* name) {
  std::fprintf(stderr, "commpool emulator: %s is not implemented\n", name);
  std::abort();
}

}  // namespace

#define COMMPOOL_MISSING(name)                                                          \
  [[gnu::visibility("default")]] [[noreturn]] void name() __asm__(COMMPOOL_TEXT(name)); \
  void name() { End(#name); }
#include "src/emulator/cuda/missing_functions.inc"
#undef COMMPOOL_MISSING

}  // namespace commpool::internal::emulator::missing
