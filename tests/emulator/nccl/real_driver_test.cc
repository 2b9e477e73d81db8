// The emulated NCCL beside a driver that is not emulated.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <cstdlib>
#include <string>

namespace {

std::string Root() {
  const char* folder = std::getenv("TEST_SRCDIR");
  const char* workspace = std::getenv("TEST_WORKSPACE");
  return folder != nullptr ? std::string(folder) + "/" + workspace + "/" : "./";
}

TEST(RealDriverDeathTest, IsRefusedWithTheReason) {
  ASSERT_NE(dlopen((Root() + "tests/emulator/nccl/libcuda.so.1").c_str(), RTLD_NOW), nullptr) << dlerror();
  void* nccl = dlopen((Root() + "src/emulator/nccl/libnccl.so.2").c_str(), RTLD_NOW);
  ASSERT_NE(nccl, nullptr) << dlerror();
  const auto get_version = reinterpret_cast<decltype(&ncclGetVersion)>(dlsym(nccl, "ncclGetVersion"));
  int version = 0;
  EXPECT_DEATH(get_version(&version), "this process has loaded a real CUDA driver");
}

TEST(ExportedSymbols, IncludeTheProfiledNames) {
  void* nccl = dlopen((Root() + "src/emulator/nccl/libnccl.so.2").c_str(), RTLD_NOW);
  ASSERT_NE(nccl, nullptr) << dlerror();
  EXPECT_EQ(dlsym(nccl, "pncclAllReduce"), dlsym(nccl, "ncclAllReduce"));
  EXPECT_NE(dlsym(nccl, "ncclCommSplit"), nullptr);
  EXPECT_EQ(dlsym(nccl, "_ZN8commpool14emulated_nccl9GetDriverEv"), nullptr);
}

}  // namespace
