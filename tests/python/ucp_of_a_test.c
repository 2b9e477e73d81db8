// Two functions of UCX that register memory. They take no memory of 2 MiB or less: UCX's status of one byte, -3, is
// then all that their answer means.
#include <stdint.h>
#include <string.h>

typedef struct {
  uint64_t mask;
  void* address;
  size_t bytes;
  unsigned flags, protection;
  int memory_type;
} Parameters;

static Parameters last;
static long mapped;

// What a compiler leaves in the other bits of the register.
static long Answer(int8_t status) { return 0x123400 | (uint8_t)status; }

__attribute__((visibility("default"))) long ucp_mem_map(void* context, const Parameters* parameters, void** handle) {
  if (parameters->bytes <= 2 << 20) return Answer(-3);
  last = *parameters;
  *handle = (char*)context + ++mapped;
  return Answer(0);
}

__attribute__((visibility("default"))) long ucp_mem_unmap(void* context, void* handle) {
  (void)context, (void)handle;
  --mapped;
  return Answer(0);
}

__attribute__((visibility("default"))) const char* ucs_status_string(int8_t status) {
  return status == -3 ? "no such device" : "?";
}

__attribute__((visibility("default"))) long last_of_test(int what) {
  return what == 0 ? mapped : what == 1 ? (long)last.mask : what == 2 ? (long)last.bytes : last.memory_type;
}
