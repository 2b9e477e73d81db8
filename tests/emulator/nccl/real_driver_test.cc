// The emulated NCCL beside a driver that is not emulated.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <nccl.h>

namespace {

const char* const kNccl = "src/emulator/nccl/libnccl.so.2";

TEST(RealDriverDeathTest, IsRefusedWithTheReason) {
  ASSERT_NE(dlopen("tests/emulator/nccl/libcuda.so.1", RTLD_NOW), nullptr) << dlerror();
  void* nccl = dlopen(kNccl, RTLD_NOW);
  ASSERT_NE(nccl, nullptr) << dlerror();
  const auto get_version = reinterpret_cast<decltype(&ncclGetVersion)>(dlsym(nccl, "ncclGetVersion"));
  int version = 0;
  EXPECT_DEATH(get_version(&version), "this process has loaded a real CUDA driver");
}

TEST(ExportedSymbols, IncludeTheProfiledNames) {
  void* nccl = dlopen(kNccl, RTLD_NOW);
  ASSERT_NE(nccl, nullptr) << dlerror();
  EXPECT_EQ(dlsym(nccl, "pncclAllReduce"), dlsym(nccl, "ncclAllReduce"));
  EXPECT_NE(dlsym(nccl, "ncclCommSplit"), nullptr);
  EXPECT_EQ(dlsym(nccl, "_ZN8commpool14emulated_nccl9GetDriverEv"), nullptr);
}

}  // namespace
