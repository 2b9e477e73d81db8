// A preloaded library as others write them: its getppid asks the one behind it.
#include <dlfcn.h>
#include <unistd.h>

extern "C" __attribute__((visibility("default"))) pid_t getppid() {
  const auto next = reinterpret_cast<pid_t (*)()>(dlsym(RTLD_NEXT, "getppid"));
  return next == &getppid ? -1 : next() + 1000000;
}
