/* A program with an NCCL of its own, as one that links libnccl_static.a. */
int ncclMemAlloc(void** pointer, unsigned long bytes) {
  (void)bytes;
  *pointer = 0;
  return 0;
}

int main(void) {
  void* pointer;
  return ncclMemAlloc(&pointer, 1);
}
