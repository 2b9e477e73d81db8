// A foreign allocator with its own names: cudaMalloc in PyTorch's pluggable signature, and two counters.
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

static int made, freed;

static void* Driver(const char* name) { return dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), name); }

__attribute__((visibility("default"))) void* special_make(ptrdiff_t bytes, int device, void* stream) {
  (void)device, (void)stream;
  uint64_t address = 0;
  int (*const make)(uint64_t*, size_t) = (int (*)(uint64_t*, size_t))Driver("cuMemAlloc_v2");
  if (make(&address, (size_t)bytes) != 0) return NULL;
  ++made;
  return (void*)(uintptr_t)address;
}

__attribute__((visibility("default"))) void special_drop(void* pointer, ptrdiff_t bytes, int device, void* stream) {
  (void)bytes, (void)device, (void)stream;
  int (*const drop)(uint64_t) = (int (*)(uint64_t))Driver("cuMemFree_v2");
  if (drop((uint64_t)(uintptr_t)pointer) == 0) ++freed;
}

__attribute__((visibility("default"))) int count_of_made(void) { return made; }
__attribute__((visibility("default"))) int count_of_freed(void) { return freed; }
