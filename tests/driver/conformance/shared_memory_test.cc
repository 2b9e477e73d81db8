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
  MappedMemory Import(const FileDescriptor& descriptor, std::optional<int> granted_device = 0) {
    return MappedMemory(PhysicalMemory::Import(driver(), descriptor, granularity()).value(), granted_device);
  }
  // Of memory that the peer made and filled.
  FileDescriptor ExportOfPeer(uint8_t value) {
    FileDescriptor exported;
    peer_.Must({Ask::kMakeShareable, granularity()});
    peer_.Must({Ask::kFill, value});
    peer_.Must({Ask::kExport}, -1, &exported);
    return exported;
  }
  // The first byte of what a descriptor stands for, by another import.
  int FirstByteOf(const FileDescriptor& descriptor) {
    MappedMemory mapped = Import(descriptor, std::nullopt);
    ExpectOk(mapped.physical().Release());  // the mapping keeps it, and may be granted still
    ExpectOk(mapped.mapping().SetAccess(DeviceLocation(0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    const int value = Read(mapped.address(), 1)[0];
    ExpectOk(mapped.Release());
    return value;
  }
  // Takes and fills other memory, so that memory which was given back by mistake does not keep its bytes.
  void UseOtherMemory() {
    for (int piece = 0; piece < 4; ++piece) others_.push_back(MakeMapped(granularity()));
    for (MappedMemory& other : others_) FillAndWait(other.address(), 0x99, granularity());
  }

  PeerProcess peer_;

 private:
  std::vector<MappedMemory> others_;
};

TEST_F(SharedMemory, IsKeptByADescriptorAlone) {
  FileDescriptor descriptor;
  {
    MappedMemory mapped = MakeMapped(granularity());
    FillAndWait(mapped.address(), 0x31, granularity());
    descriptor = mapped.physical().Export().value();
  }
  UseOtherMemory();
  EXPECT_EQ(FirstByteOf(descriptor), 0x31);
  peer_.Must({Ask::kImport}, descriptor.get());
  EXPECT_EQ(peer_.Do({Ask::kRead}).value, 0x31u);
}

TEST_F(SharedMemory, CountsOnTheDeviceUntilTheLastDescriptorIsClosed) {
  COMMPOOL_REQUIRE_EMULATOR("others use a GPU's memory at the same time");
  const uint64_t before = FreeBytes();
  FileDescriptor descriptor = MakeMapped(granularity()).physical().Export().value();
  EXPECT_EQ(FreeBytes(), before - granularity());
  peer_.Must({Ask::kImport}, descriptor.get());
  descriptor = FileDescriptor();
  EXPECT_EQ(FreeBytes(), before - granularity()) << "the other process has it";
  peer_.Must({Ask::kUnmap});
  EXPECT_EQ(FreeBytes(), before);
}

TEST_F(SharedMemory, AnImporterThatIsKilledTakesNothing) {
  const uint64_t before = FreeBytes();
  {
    MappedMemory mapped = MakeMapped(granularity());
    FillAndWait(mapped.address(), 0x42, granularity());
    peer_.Must({Ask::kImport}, mapped.physical().Export().value().get());
    EXPECT_EQ(peer_.Do({Ask::kRead}).value, 0x42u);
    peer_.Kill();
    EXPECT_EQ(Read(mapped.address(), 1)[0], 0x42);
  }
  if (!OnEmulator()) return;  // others use a GPU's memory at the same time
  EXPECT_EQ(FreeBytes(), before) << "and keeps nothing";
}

TEST_F(SharedMemory, AKilledExporterLeavesWhatOthersHaveMapped) {
  MappedMemory mapped = Import(ExportOfPeer(0x53));
  peer_.Kill();
  UseOtherMemory();
  EXPECT_EQ(Read(mapped.address(), 1)[0], 0x53);
  int onward = -1;
  EXPECT_EQ(cuda().cuMemExportToShareableHandle(&onward, mapped.physical().get(),
                                                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            CUDA_ERROR_INVALID_VALUE)
      << "an importer exports nothing onward (H200, driver 580)";
  ExpectOk(mapped.Release());
}

TEST_F(SharedMemory, ADescriptorOutlivesItsExporter) {
  const FileDescriptor descriptor = ExportOfPeer(0x64);
  peer_.Kill();
  EXPECT_EQ(FirstByteOf(descriptor), 0x64);
}

TEST_F(SharedMemory, AnImportTellsTheLocationAndNoHandleTypes) {
  MappedMemory mapped = MakeMapped(granularity());
  PhysicalMemory imported = PhysicalMemory::Import(driver(), mapped.physical().Export().value(), granularity()).value();
  const CUmemAllocationProp properties = Get(cuda().cuMemGetAllocationPropertiesFromHandle, imported.get());
  EXPECT_EQ(properties.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
  EXPECT_EQ(properties.location.id, 0);
  EXPECT_EQ(properties.requestedHandleTypes, CU_MEM_HANDLE_TYPE_NONE) << "H200, driver 580";
  ExpectOk(imported.Release());
}

TEST_F(SharedMemory, IsNotImportedByADescriptorOfSomethingElse) {
  const FileDescriptor file(memfd_create("foreign", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(file.get(), 1 << 20), 0);
  for (const int descriptor : {-1, 1 << 20, file.get()}) {
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_EQ(cuda().cuMemImportFromShareableHandle(&handle, reinterpret_cast<void*>(static_cast<intptr_t>(descriptor)),
                                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
              CUDA_ERROR_UNKNOWN)
        << "H200, driver 580";
  }
}

// No page promises it; an H200 does so (driver 580).
TEST_F(SharedMemory, MayBeGrantedForReadingAlone) {
  MappedMemory mapped = MakeMapped(granularity());
  FillAndWait(mapped.address(), 0x75, 4096);
  const CUmemAccessDesc access{DeviceLocation(0), CU_MEM_ACCESS_FLAGS_PROT_READ};
  EXPECT_EQ(cuda().cuMemSetAccess(mapped.address(), granularity(), &access, 1), CUDA_SUCCESS);
  EXPECT_EQ(Get(cuda().cuMemGetAccess, &access.location, mapped.address()), CU_MEM_ACCESS_FLAGS_PROT_READ);
  EXPECT_EQ(Read(mapped.address(), 1)[0], 0x75);
  if (!OnEmulator()) return;  // nobody has tried what a write costs there
  EXPECT_EQ(cuda().cuMemsetD8Async(mapped.address(), 1, 4096, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Read(mapped.address(), 1)[0], 0x75);
}

}  // namespace
}  // namespace commpool::internal::testing
