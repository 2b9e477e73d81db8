// The functions of NVML that PyTorch calls.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>

namespace {

template <typename Function>
Function* Nvml(const char* name) {
  static void* const library = dlopen("src/emulator/nvml/libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr) << dlerror();
  return reinterpret_cast<Function*>(dlsym(library, name));
}

TEST(Nvml, CountsTheMachinesDevices) {
  EXPECT_EQ(Nvml<int()>("nvmlInit_v2")(), 0);
  unsigned count = 0;
  EXPECT_EQ(Nvml<int(unsigned*)>("nvmlDeviceGetCount_v2")(&count), 0);
  EXPECT_EQ(count, 4u);
  int version = 0;
  EXPECT_EQ(Nvml<int(int*)>("nvmlSystemGetCudaDriverVersion_v2")(&version), 0);
  EXPECT_GE(version, 13000);
}

TEST(Nvml, FindsADeviceByItsBus) {
  const auto by_bus = Nvml<int(const char*, void**)>("nvmlDeviceGetHandleByPciBusId_v2");
  const auto by_index = Nvml<int(unsigned, void**)>("nvmlDeviceGetHandleByIndex_v2");
  void* device = nullptr;
  void* same = nullptr;
  EXPECT_EQ(by_bus("00000000:02:00.0", &device), 0);
  EXPECT_EQ(by_index(1, &same), 0);
  EXPECT_EQ(device, same);
  EXPECT_NE(by_bus("00000000:09:00.0", &device), 0);
  EXPECT_NE(by_index(4, &device), 0);
  char text[64];
  EXPECT_EQ(Nvml<int(void*, char*, unsigned)>("nvmlDeviceGetUUID")(same, text, sizeof(text)), 0);
  EXPECT_EQ(std::string(text), "GPU-02000000-0000-0000-0000-000000000000");
}

}  // namespace
