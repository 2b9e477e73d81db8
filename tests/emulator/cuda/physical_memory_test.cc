// Physical memory: how much there is, when it is free again, and that the system gets its pages back.
#include <sys/stat.h>

#include <filesystem>

#include "tests/emulator/cuda/machine_fixture.h"

namespace commpool::internal::testing {
namespace {

class PhysicalMemories : public MachineTest {
 protected:
  static void SetUpTestSuite() { DeclareMachine("devices=2,memory=64MiB,host_memory=32MiB"); }
  static constexpr uint64_t kCapacity = uint64_t{64} << 20;

  // Expects the declared capacity too, however much of it is in use.
  uint64_t Free() {
    size_t free_bytes = 0;
    size_t total = 0;
    EXPECT_EQ(cuda().cuMemGetInfo(&free_bytes, &total), CUDA_SUCCESS);
    EXPECT_EQ(total, kCapacity);
    return free_bytes;
  }
  PhysicalMemory Create(uint64_t bytes, const CUmemAllocationProp& properties = Properties()) {
    return PhysicalMemory::Create(driver(), bytes, properties).value();
  }
  CUresult Try(uint64_t bytes, const CUmemAllocationProp& properties = Properties()) {
    CUmemGenericAllocationHandle handle = 0;
    return cuda().cuMemCreate(&handle, bytes, &properties, 0);
  }
};

// How much of the system's memory the process's anonymous files hold.
uint64_t BytesHeldInFiles() {
  uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    struct stat about = {};
    if (std::filesystem::read_symlink(entry, gone).string().find("memfd") == std::string::npos) continue;
    if (stat(entry.path().c_str(), &about) == 0) bytes += static_cast<uint64_t>(about.st_blocks) * 512;
  }
  return bytes;
}

TEST_F(PhysicalMemories, HoldTheDeclaredCapacityAndNotAByteMore) {
  ASSERT_EQ(Free(), kCapacity);
  {
    PhysicalMemory most = Create(kCapacity - kUnit);
    EXPECT_EQ(Free(), kUnit);
    EXPECT_EQ(Try(2 * kUnit), CUDA_ERROR_OUT_OF_MEMORY);
    PhysicalMemory rest = Create(kUnit);
    EXPECT_EQ(Free(), 0u);
    CUdeviceptr memory = 0;
    EXPECT_EQ(cuda().cuMemAlloc(&memory, 1), CUDA_ERROR_OUT_OF_MEMORY) << "both kinds come from one memory";
  }
  EXPECT_EQ(Free(), kCapacity);
}

TEST_F(PhysicalMemories, OfDevicesAndNodesAreApart) {
  PhysicalMemory all = Create(kCapacity, Properties(0));
  PhysicalMemory other = Create(kCapacity, Properties(1));
  CUmemAllocationProp on_host = Properties();
  on_host.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
  EXPECT_EQ(Try(kCapacity, on_host), CUDA_ERROR_OUT_OF_MEMORY);
  PhysicalMemory host = Create(kCapacity / 2, on_host);
  on_host.location.id = 2;
  EXPECT_NE(Try(kUnit, on_host), CUDA_SUCCESS) << "there are two nodes";
}

TEST_F(PhysicalMemories, ServeAfterTheyWereFragmented) {
  std::vector<PhysicalMemory> pieces;
  while (Free() > 0) pieces.push_back(Create(4 * kUnit));
  for (size_t index = 0; index < pieces.size(); index += 2) EXPECT_TRUE(pieces[index].Release().ok());
  EXPECT_EQ(Free(), kCapacity / 2);
  for (uint64_t bytes = 0; bytes < kCapacity / 2; bytes += kUnit) {
    pieces.push_back(Create(kUnit));
  }
  EXPECT_EQ(Free(), 0u);
}

TEST_F(PhysicalMemories, LastWhileTheyAreMapped) {
  MappedMemory memory = Map();
  ASSERT_TRUE(memory.physical().Release().ok());
  EXPECT_EQ(Free(), kCapacity - kUnit);
  memory.Unmap();
  EXPECT_EQ(Free(), kCapacity);
}

TEST_F(PhysicalMemories, GiveTheirPagesBackToTheSystem) {
  const uint64_t before = BytesHeldInFiles();
  const CUdeviceptr memory = NewMemory(kCapacity / 2);
  EXPECT_LT(BytesHeldInFiles(), before + kUnit) << "memory costs nothing before it is touched";
  ASSERT_EQ(Fill(memory, 0xab, kCapacity / 2), CUDA_SUCCESS);
  EXPECT_GE(BytesHeldInFiles(), before + kCapacity / 2);
  ASSERT_EQ(cuda().cuMemFree(memory), CUDA_SUCCESS);
  EXPECT_LT(BytesHeldInFiles(), before + kUnit);
}

TEST_F(PhysicalMemories, SizesThatOverflowAreOutOfMemoryOrInvalid) {
  CUdeviceptr memory = 0;
  for (const uint64_t bytes : {UINT64_MAX, UINT64_MAX - 4096, uint64_t{1} << 63}) {
    EXPECT_EQ(cuda().cuMemAlloc(&memory, bytes), CUDA_ERROR_OUT_OF_MEMORY) << bytes;
    EXPECT_NE(Try(bytes), CUDA_SUCCESS) << bytes;
  }
  EXPECT_EQ(Free(), kCapacity);
}

}  // namespace
}  // namespace commpool::internal::testing
