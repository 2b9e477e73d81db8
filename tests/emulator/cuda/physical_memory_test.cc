// Physical memory: how much there is, when it is free again, and that the system gets its pages back.
#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "tests/emulator/cuda/machine_fixture.h"

namespace commpool::internal::testing {
namespace {

class PhysicalMemories : public MachineTest {
 protected:
  static void SetUpTestSuite() { DeclareMachine("devices=2,memory=64MiB,host_memory=32MiB"); }
  static constexpr uint64_t kCapacity = uint64_t{64} << 20;

  uint64_t Free() {
    size_t free_bytes = 0;
    size_t total = 0;
    EXPECT_EQ(cuda().cuMemGetInfo(&free_bytes, &total), CUDA_SUCCESS);
    EXPECT_EQ(total, kCapacity);
    return free_bytes;
  }
  CUresult Create(uint64_t bytes, const CUmemAllocationProp& properties, CUmemGenericAllocationHandle* handle) {
    return cuda().cuMemCreate(handle, bytes, &properties, 0);
  }
};

// How much of the system's memory the process's anonymous files hold.
uint64_t BytesHeldInFiles() {
  uint64_t bytes = 0;
  DIR* const folder = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(folder)) {
    char name[256] = {};
    struct stat about = {};
    const std::string path = std::string("/proc/self/fd/") + entry->d_name;
    if (readlink(path.c_str(), name, sizeof(name) - 1) < 0 || std::string(name).find("memfd") == std::string::npos) {
      continue;
    }
    if (stat(path.c_str(), &about) == 0) bytes += static_cast<uint64_t>(about.st_blocks) * 512;
  }
  closedir(folder);
  return bytes;
}

TEST_F(PhysicalMemories, HoldTheDeclaredCapacityAndNotAByteMore) {
  ASSERT_EQ(Free(), kCapacity);
  {
    PhysicalMemory most = PhysicalMemory::Create(driver(), kCapacity - kUnit, Properties()).value();
    EXPECT_EQ(Free(), kUnit);
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_EQ(Create(2 * kUnit, Properties(), &handle), CUDA_ERROR_OUT_OF_MEMORY);
    PhysicalMemory rest = PhysicalMemory::Create(driver(), kUnit, Properties()).value();
    EXPECT_EQ(Free(), 0u);
    CUdeviceptr memory = 0;
    EXPECT_EQ(cuda().cuMemAlloc(&memory, 1), CUDA_ERROR_OUT_OF_MEMORY) << "both kinds come from one memory";
  }
  EXPECT_EQ(Free(), kCapacity);
}

TEST_F(PhysicalMemories, OfDevicesAndNodesAreApart) {
  PhysicalMemory all = PhysicalMemory::Create(driver(), kCapacity, Properties(0)).value();
  PhysicalMemory other = PhysicalMemory::Create(driver(), kCapacity, Properties(1)).value();
  CUmemAllocationProp on_host = Properties();
  on_host.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_EQ(Create(kCapacity, on_host, &handle), CUDA_ERROR_OUT_OF_MEMORY);
  PhysicalMemory host = PhysicalMemory::Create(driver(), kCapacity / 2, on_host).value();
  on_host.location.id = 2;
  EXPECT_NE(Create(kUnit, on_host, &handle), CUDA_SUCCESS) << "there are two nodes";
}

TEST_F(PhysicalMemories, ServeAfterTheyWereFragmented) {
  std::vector<PhysicalMemory> pieces;
  while (Free() > 0) pieces.push_back(PhysicalMemory::Create(driver(), 4 * kUnit, Properties()).value());
  for (size_t index = 0; index < pieces.size(); index += 2) EXPECT_TRUE(pieces[index].Release().ok());
  EXPECT_EQ(Free(), kCapacity / 2);
  for (uint64_t bytes = 0; bytes < kCapacity / 2; bytes += kUnit) {
    pieces.push_back(PhysicalMemory::Create(driver(), kUnit, Properties()).value());
  }
  EXPECT_EQ(Free(), 0u);
}

TEST_F(PhysicalMemories, LastWhileTheyAreMapped) {
  AddressRange range = AddressRange::Reserve(driver(), kUnit, 0).value();
  PhysicalMemory physical = PhysicalMemory::Create(driver(), kUnit, Properties()).value();
  Mapping mapping = Mapping::Map(driver(), range.address(), physical).value();
  ASSERT_TRUE(physical.Release().ok());
  EXPECT_EQ(Free(), kCapacity - kUnit);
  ASSERT_TRUE(mapping.Release().ok());
  EXPECT_EQ(Free(), kCapacity);
}

TEST_F(PhysicalMemories, GiveTheirPagesBackToTheSystem) {
  const uint64_t before = BytesHeldInFiles();
  CUdeviceptr memory = 0;
  ASSERT_EQ(cuda().cuMemAlloc(&memory, kCapacity / 2), CUDA_SUCCESS);
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
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_NE(Create(bytes, Properties(), &handle), CUDA_SUCCESS) << bytes;
  }
  EXPECT_EQ(Free(), kCapacity);
}

}  // namespace
}  // namespace commpool::internal::testing
