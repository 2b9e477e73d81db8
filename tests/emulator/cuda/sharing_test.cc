// Two processes share one physical memory by file descriptor: the same bytes, until the last one releases it.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "tests/emulator/cuda/machine_fixture.h"

namespace commpool::internal::testing {
namespace {

const char* const kImportProgram = "tests/emulator/cuda/import_program";

// The other process, with a socket as its standard input and output.
class Importer {
 public:
  Importer(int descriptor, int expected, int written, bool hold) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
    const std::string arguments[] = {std::to_string(descriptor), std::to_string(expected), std::to_string(written)};
    child_ = fork();
    if (child_ == 0) {
      dup2(ends[1], STDIN_FILENO);
      dup2(ends[1], STDOUT_FILENO);
      fcntl(descriptor, F_SETFD, 0);  // inherited
      execl(kImportProgram, kImportProgram, arguments[0].c_str(), arguments[1].c_str(), arguments[2].c_str(),
            hold ? "hold" : nullptr, nullptr);
      _exit(127);
    }
    close(ends[1]);
    socket_ = ends[0];
  }
  ~Importer() { close(socket_); }
  Importer(const Importer&) = delete;
  Importer& operator=(const Importer&) = delete;

  void AwaitReady() {
    std::string text;
    char letter = 0;
    while (text.find("ready\n") == std::string::npos && read(socket_, &letter, 1) == 1) text += letter;
  }
  // Its exit code; minus the signal where one ended it.
  int Finish() {
    shutdown(socket_, SHUT_WR);
    int status = 0;
    EXPECT_EQ(waitpid(child_, &status, 0), child_);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  pid_t child_ = -1;
  int socket_ = -1;
};

class Sharing : public MachineTest {
 protected:
  Sharing() { EXPECT_EQ(Fill(address(), 0x11, kUnit), CUDA_SUCCESS); }

  CUdeviceptr address() const { return memory_.address(); }
  CUresult Export(PhysicalMemory& memory, int* descriptor) {
    constexpr auto kType = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return cuda().cuMemExportToShareableHandle(descriptor, memory.get(), kType, 0);
  }
  int Export() {
    int descriptor = -1;
    EXPECT_EQ(Export(memory_.physical(), &descriptor), CUDA_SUCCESS);
    return descriptor;
  }
  CUresult Import(int descriptor, CUmemGenericAllocationHandle* handle) {
    return cuda().cuMemImportFromShareableHandle(handle, reinterpret_cast<void*>(static_cast<intptr_t>(descriptor)),
                                                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  }
  uint64_t Free() {
    size_t free_bytes = 0;
    EXPECT_EQ(cuda().cuMemGetInfo(&free_bytes, nullptr), CUDA_SUCCESS);
    return free_bytes;
  }
  void LetGo() {
    memory_.Unmap();
    EXPECT_TRUE(memory_.physical().Release().ok());
  }

 private:
  MappedMemory memory_ = Map();
};

TEST_F(Sharing, TheOtherProcessReadsAndWritesTheSameBytes) {
  const int descriptor = Export();
  EXPECT_EQ(Importer(descriptor, 0x11, 0x22, false).Finish(), 0);
  EXPECT_EQ(FirstByte(address()), 0x22);
  EXPECT_EQ(FirstByte(address() + kUnit - 1), 0x22);
  close(descriptor);
}

TEST_F(Sharing, MemoryLivesUntilTheLastProcessLetsGo) {
  const uint64_t before = Free();
  const int descriptor = Export();
  Importer other(descriptor, 0x11, 0x22, true);
  other.AwaitReady();
  close(descriptor);
  LetGo();
  // Fills the rest of the device: no page may be the one that the other process still reads.
  std::vector<MappedMemory> more;
  for (int piece = 0; piece < 4; ++piece) {
    more.push_back(Map());
    ASSERT_EQ(Fill(more.back().address(), 0x99, kUnit), CUDA_SUCCESS);
  }
  EXPECT_EQ(other.Finish(), 0) << "8: the bytes are gone";
  more.clear();
  EXPECT_EQ(Free(), before + kUnit);
}

TEST_F(Sharing, AnImportIsTheSameMemoryInThisProcess) {
  const int descriptor = Export();
  CUmemGenericAllocationHandle handle = 0;
  ASSERT_EQ(Import(descriptor, &handle), CUDA_SUCCESS);
  close(descriptor);
  AddressRange range = AddressRange::Reserve(driver(), kUnit, 0).value();
  const CUmemAccessDesc access{{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  ASSERT_EQ(cuda().cuMemMap(range.address(), kUnit, 0, handle, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuMemSetAccess(range.address(), kUnit, &access, 1), CUDA_SUCCESS);
  EXPECT_EQ(FirstByte(range.address()), 0x11);
  EXPECT_EQ(cuda().cuMemUnmap(range.address(), kUnit), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuMemRelease(handle), CUDA_SUCCESS);
}

TEST_F(Sharing, AForeignDescriptorIsRefused) {
  CUmemGenericAllocationHandle handle = 0;
  const int foreign = memfd_create("foreign", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(foreign, 1 << 20), 0);
  int pipes[2];
  ASSERT_EQ(pipe2(pipes, O_CLOEXEC), 0);
  for (const int descriptor : {foreign, pipes[0], -1, 1 << 20}) {
    EXPECT_NE(Import(descriptor, &handle), CUDA_SUCCESS) << descriptor;
  }
  for (const int descriptor : {foreign, pipes[0], pipes[1]}) close(descriptor);
}

TEST_F(Sharing, ExportsOnlyWhatWasMadeForIt) {
  CUmemAllocationProp properties = Properties();
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
  PhysicalMemory physical = PhysicalMemory::Create(driver(), kUnit, properties).value();
  int descriptor = -1;
  EXPECT_EQ(Export(physical, &descriptor), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(descriptor, -1);
}

}  // namespace
}  // namespace commpool::internal::testing
