// A libcuda.so.1 that is not the emulator's: it stands in for the real driver.
extern "C" __attribute__((visibility("default"))) int cuInit(unsigned int) { return 0; }
