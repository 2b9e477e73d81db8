// Physical memory between processes by file descriptors: who keeps it, and what ends with a killed process.
//
// Source: the driver API's page on virtual memory management ("the memory is freed when all outstanding mappings are
// unmapped and all outstanding references to the handle, its shareable counterparts included, are released"). What it
// leaves open an H200 with driver 580 answered.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/driver/conformance/conformance_fixture.h"
#include "tests/driver/conformance/peer_process.h"

namespace commpool::internal::testing {
namespace {

class SharedMemory : public ConformanceTest {
 protected:
  FileDescriptor Export(CUmemGenericAllocationHandle handle) {
    int descriptor = -1;
    EXPECT_EQ(cuda().cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
              CUDA_SUCCESS);
    return FileDescriptor(descriptor);
  }
  CUresult Import(int descriptor, CUmemGenericAllocationHandle* handle) {
    return cuda().cuMemImportFromShareableHandle(handle, reinterpret_cast<void*>(static_cast<intptr_t>(descriptor)),
                                                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  }
  // The first byte of what a descriptor stands for, by another import.
  int FirstByteOf(int descriptor) {
    CUmemGenericAllocationHandle handle = 0;
    const CUresult imported = Import(descriptor, &handle);
    EXPECT_EQ(imported, CUDA_SUCCESS);
    if (imported != CUDA_SUCCESS) return -1;
    AddressRange range = AddressRange::Reserve(driver(), granularity(), 0).value();
    const CUmemAccessDesc access{DeviceLocation(0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    EXPECT_EQ(cuda().cuMemMap(range.address(), granularity(), 0, handle, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuda().cuMemRelease(handle), CUDA_SUCCESS) << "the mapping keeps it";
    EXPECT_EQ(cuda().cuMemSetAccess(range.address(), granularity(), &access, 1), CUDA_SUCCESS);
    const int value = Read(range.address(), 1)[0];
    EXPECT_EQ(cuda().cuMemUnmap(range.address(), granularity()), CUDA_SUCCESS);
    return value;
  }
  // Takes and fills other memory, so that memory which was given back by mistake does not keep its bytes.
  void UseOtherMemory() {
    for (int piece = 0; piece < 4; ++piece) others_.push_back(MakeMapped(granularity()));
    for (MappedMemory& other : others_) Fill(other.address(), 0x99, granularity());
    EXPECT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  }
  uint64_t FreeBytes() {
    size_t bytes = 0;
    EXPECT_EQ(cuda().cuMemGetInfo(&bytes, nullptr), CUDA_SUCCESS);
    return bytes;
  }

  PeerProcess peer_;

 private:
  std::vector<MappedMemory> others_;
};

TEST_F(SharedMemory, IsKeptByADescriptorAlone) {
  FileDescriptor descriptor;
  {
    MappedMemory mapped = MakeMapped(granularity());
    Fill(mapped.address(), 0x31, granularity());
    EXPECT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
    descriptor = Export(mapped.physical().get());
  }
  UseOtherMemory();
  EXPECT_EQ(FirstByteOf(descriptor.get()), 0x31);
  ASSERT_EQ(peer_.Import(descriptor.get()).result, CUDA_SUCCESS);
  EXPECT_EQ(peer_.Do(Ask::kRead).value, 0x31u);
}

TEST_F(SharedMemory, CountsOnTheDeviceUntilTheLastDescriptorIsClosed) {
  COMMPOOL_REQUIRE_EMULATOR("others use a GPU's memory at the same time");
  const uint64_t before = FreeBytes();
  FileDescriptor descriptor = Export(MakeMapped(granularity()).physical().get());
  EXPECT_EQ(FreeBytes(), before - granularity());
  ASSERT_EQ(peer_.Import(descriptor.get()).result, CUDA_SUCCESS);
  descriptor = FileDescriptor();
  EXPECT_EQ(FreeBytes(), before - granularity()) << "the other process has it";
  EXPECT_EQ(peer_.Do(Ask::kUnmap).result, CUDA_SUCCESS);
  EXPECT_EQ(FreeBytes(), before);
}

TEST_F(SharedMemory, AnImporterThatIsKilledTakesNothing) {
  const uint64_t before = FreeBytes();
  {
    MappedMemory mapped = MakeMapped(granularity());
    Fill(mapped.address(), 0x42, granularity());
    EXPECT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
    ASSERT_EQ(peer_.Import(Export(mapped.physical().get()).get()).result, CUDA_SUCCESS);
    EXPECT_EQ(peer_.Do(Ask::kRead).value, 0x42u);
    peer_.Kill();
    EXPECT_EQ(Read(mapped.address(), 1)[0], 0x42);
  }
  if (!OnEmulator()) return;  // others use a GPU's memory at the same time
  EXPECT_EQ(FreeBytes(), before) << "and keeps nothing";
}

TEST_F(SharedMemory, AKilledExporterLeavesWhatOthersHaveMapped) {
  ASSERT_EQ(peer_.Do(Ask::kMakeShareable, granularity()).result, CUDA_SUCCESS);
  ASSERT_EQ(peer_.Do(Ask::kFill, 0x53).result, CUDA_SUCCESS);
  CUmemGenericAllocationHandle handle = 0;
  ASSERT_EQ(Import(peer_.Export().get(), &handle), CUDA_SUCCESS);
  AddressRange range = AddressRange::Reserve(driver(), granularity(), 0).value();
  const CUmemAccessDesc access{DeviceLocation(0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  ASSERT_EQ(cuda().cuMemMap(range.address(), granularity(), 0, handle, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuMemSetAccess(range.address(), granularity(), &access, 1), CUDA_SUCCESS);
  peer_.Kill();
  UseOtherMemory();
  EXPECT_EQ(Read(range.address(), 1)[0], 0x53);
  int onward = -1;
  EXPECT_EQ(cuda().cuMemExportToShareableHandle(&onward, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            CUDA_ERROR_INVALID_VALUE)
      << "an importer exports nothing onward (H200, driver 580)";
  EXPECT_EQ(cuda().cuMemUnmap(range.address(), granularity()), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuMemRelease(handle), CUDA_SUCCESS);
}

TEST_F(SharedMemory, ADescriptorOutlivesItsExporter) {
  ASSERT_EQ(peer_.Do(Ask::kMakeShareable, granularity()).result, CUDA_SUCCESS);
  ASSERT_EQ(peer_.Do(Ask::kFill, 0x64).result, CUDA_SUCCESS);
  const FileDescriptor descriptor = peer_.Export();
  peer_.Kill();
  EXPECT_EQ(FirstByteOf(descriptor.get()), 0x64);
}

TEST_F(SharedMemory, AnImportTellsTheLocationAndNoHandleTypes) {
  MappedMemory mapped = MakeMapped(granularity());
  CUmemGenericAllocationHandle handle = 0;
  ASSERT_EQ(Import(Export(mapped.physical().get()).get(), &handle), CUDA_SUCCESS);
  CUmemAllocationProp properties = {};
  EXPECT_EQ(cuda().cuMemGetAllocationPropertiesFromHandle(&properties, handle), CUDA_SUCCESS);
  EXPECT_EQ(properties.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
  EXPECT_EQ(properties.location.id, 0);
  EXPECT_EQ(properties.requestedHandleTypes, CU_MEM_HANDLE_TYPE_NONE) << "H200, driver 580";
  EXPECT_EQ(cuda().cuMemRelease(handle), CUDA_SUCCESS);
}

TEST_F(SharedMemory, IsNotImportedByADescriptorOfSomethingElse) {
  const FileDescriptor file(memfd_create("foreign", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(file.get(), 1 << 20), 0);
  for (const int descriptor : {-1, 1 << 20, file.get()}) {
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_EQ(Import(descriptor, &handle), CUDA_ERROR_UNKNOWN) << "H200, driver 580";
  }
}

// No page promises it; an H200 does so (driver 580).
TEST_F(SharedMemory, MayBeGrantedForReadingAlone) {
  MappedMemory mapped = MakeMapped(granularity());
  Fill(mapped.address(), 0x75, 4096);
  EXPECT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  const CUmemAccessDesc access{DeviceLocation(0), CU_MEM_ACCESS_FLAGS_PROT_READ};
  EXPECT_EQ(cuda().cuMemSetAccess(mapped.address(), granularity(), &access, 1), CUDA_SUCCESS);
  unsigned long long flags = 0;
  const CUmemLocation location = DeviceLocation(0);
  EXPECT_EQ(cuda().cuMemGetAccess(&flags, &location, mapped.address()), CUDA_SUCCESS);
  EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_READ);
  EXPECT_EQ(Read(mapped.address(), 1)[0], 0x75);
  if (!OnEmulator()) return;  // nobody has tried what a write costs there
  EXPECT_EQ(cuda().cuMemsetD8Async(mapped.address(), 1, 4096, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Read(mapped.address(), 1)[0], 0x75);
}

}  // namespace
}  // namespace commpool::internal::testing
