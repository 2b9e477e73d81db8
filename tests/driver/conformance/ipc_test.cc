// Memory of cuMemAlloc and events between processes, by handles of 64 bytes.
//
// Source: the driver API's pages on cuIpcGetMemHandle, cuIpcOpenMemHandle, cuIpcCloseMemHandle, cuIpcGetEventHandle and
// cuIpcOpenEventHandle. Where they name no error, it is that of an H200 with driver 580.

#include "tests/driver/conformance/conformance_fixture.h"
#include "tests/driver/conformance/peer_process.h"

namespace commpool::internal::testing {
namespace {

constexpr uint64_t kBytes = uint64_t{4} << 20;

class IpcTest : public ConformanceTest {
 protected:
  CUipcMemHandle HandleOf(CUdeviceptr address) { return Get(Ipc().get_memory, address); }
  // Memory that the peer made and filled, by the handle of the byte at `offset`.
  CUipcMemHandle MadeByPeer(uint8_t value, uint64_t offset = 0) {
    peer_.Must({Ask::kAllocate, kBytes});
    peer_.Must({Ask::kFill, value});
    return peer_.Must({Ask::kGetMemory, offset}).handle.memory;
  }
  CUdeviceptr Open(const CUipcMemHandle& handle, CUresult expected = CUDA_SUCCESS) {
    CUdeviceptr address = 0;
    EXPECT_EQ(Ipc().open_memory(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), expected);
    return address;
  }
  void Close(CUdeviceptr address) { EXPECT_EQ(Ipc().close_memory(address), CUDA_SUCCESS); }
  // The event that the peer made. Who opened it destroys it.
  CUevent OpenEventOfPeer() { return Get(Ipc().open_event, peer_.Must({Ask::kGetEvent}).handle.event); }
  CUevent MakeShared() { return MakeEvent(CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS); }

  PeerProcess peer_;
};

using IpcMemory = IpcTest;
using IpcEvents = IpcTest;

TEST_F(IpcMemory, IsTheSameMemoryInTheOtherProcess) {
  const CUdeviceptr memory = Allocate(kBytes);
  FillAndWait(memory, 0x11, kBytes);
  peer_.Must({.ask = Ask::kOpenMemory, .handle = {.memory = HandleOf(memory)}});
  EXPECT_EQ(peer_.Do({Ask::kRead}).value, 0x11u);
  peer_.Must({Ask::kFill, 0x22});
  EXPECT_EQ(Read(memory, 1)[0], 0x22);
  peer_.Must({Ask::kCloseMemory});
  EXPECT_EQ(peer_.Do({Ask::kCloseMemory}).result, CUDA_ERROR_INVALID_VALUE);
}

TEST_F(IpcMemory, OfAPartOpensAsTheWholeAllocation) {
  const CUdeviceptr opened = Open(MadeByPeer(0x33, kBytes / 2));
  CUdeviceptr base = 0;
  size_t bytes = 0;
  EXPECT_EQ(cuda().cuMemGetAddressRange(&base, &bytes, opened), CUDA_SUCCESS);
  EXPECT_EQ(base, opened);
  EXPECT_GE(bytes, kBytes);
  EXPECT_EQ(Read(opened, 1)[0], 0x33) << "the address is that of the first byte";
  Close(opened);
}

TEST_F(IpcMemory, IsOpenOnceAndCountedInAContext) {
  const CUipcMemHandle handle = MadeByPeer(0x44);
  const CUdeviceptr first = Open(handle);
  EXPECT_EQ(Open(handle), first);
  Close(first);
  EXPECT_EQ(Read(first, 1)[0], 0x44) << "still open once";
  Close(first);
}

TEST_F(IpcMemory, IsNotOpenedInItsOwnProcess) { Open(HandleOf(Allocate(kBytes)), CUDA_ERROR_INVALID_CONTEXT); }

TEST_F(IpcMemory, IsNotFreedByWhoOpenedIt) {
  const CUdeviceptr opened = Open(MadeByPeer(0x55));
  EXPECT_EQ(cuda().cuMemFree(opened), CUDA_ERROR_INVALID_VALUE);
  Close(opened);
}

TEST_F(IpcMemory, HasNoHandleUnlessCuMemAllocMadeIt) {
  CUipcMemHandle handle = {};
  EXPECT_EQ(Ipc().get_memory(&handle, MakeMapped(granularity()).address()), CUDA_ERROR_INVALID_VALUE);
  const CUdeviceptr ordered = Get(cuda().cuMemAllocAsync, kBytes, nullptr);
  EXPECT_EQ(Ipc().get_memory(&handle, ordered), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda().cuMemFreeAsync(ordered, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(Ipc().get_memory(&handle, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(IpcMemory, IsNotOpenedOnceItIsFreedOrItsProcessIsGone) {
  const CUipcMemHandle freed = MadeByPeer(0x66);
  peer_.Must({Ask::kFree});
  Open(freed, CUDA_ERROR_INVALID_VALUE);
  const CUipcMemHandle lost = MadeByPeer(0x66);
  peer_.Kill();
  Open(lost, CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(IpcMemory, AKilledOpenerTakesNothing) {
  const CUdeviceptr memory = Allocate(kBytes);
  const CUipcMemHandle handle = HandleOf(memory);
  peer_.Must({.ask = Ask::kOpenMemory, .handle = {.memory = handle}});
  peer_.Must({Ask::kFill, 0x77});
  peer_.Kill();
  EXPECT_EQ(Read(memory, 1)[0], 0x77);
  PeerProcess next;
  next.Must({.ask = Ask::kOpenMemory, .handle = {.memory = handle}});
  EXPECT_EQ(next.Do({Ask::kRead}).value, 0x77u);
  next.Must({Ask::kCloseMemory});
}

TEST_F(IpcMemory, AKilledExporterLeavesWhatIsOpen) {
  const CUdeviceptr opened = Open(MadeByPeer(0x21));
  peer_.Kill();
  EXPECT_EQ(Read(opened, 1)[0], 0x21);
  Close(opened);
}

// The page calls it undefined.
TEST_F(IpcMemory, ThatIsFreedWhileItIsOpenIsReported) {
  COMMPOOL_REQUIRE_EMULATOR("hardware leaves it undefined");
  const CUdeviceptr memory = Get(cuda().cuMemAlloc, kBytes);
  peer_.Must({.ask = Ask::kOpenMemory, .handle = {.memory = HandleOf(memory)}});
  peer_.Must({Ask::kFill, 0x32});
  ASSERT_EQ(cuda().cuMemFree(memory), CUDA_SUCCESS);
  ExpectOneReport({"another process has it open"});
  Fill(Allocate(kBytes), 0x99, kBytes);
  EXPECT_EQ(peer_.Do({Ask::kRead}).value, 0x32u) << "who opened it keeps it";
  peer_.Must({Ask::kCloseMemory});
}

TEST_F(IpcEvents, AreExportedIfTheyWereMadeForIt) {
  CUipcEventHandle handle = {};
  EXPECT_EQ(Ipc().get_event(&handle, MakeEvent(CU_EVENT_DISABLE_TIMING)), CUDA_ERROR_INVALID_HANDLE);
  CUevent opened = nullptr;
  EXPECT_EQ(Ipc().open_event(&opened, Get(Ipc().get_event, MakeShared())), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(IpcEvents, AreDoneWhenTheRecordOfTheOtherProcessIs) {
  peer_.Must({Ask::kMakeEvent});
  const CUevent event = OpenEventOfPeer();
  EXPECT_EQ(cuda().cuEventQuery(event), CUDA_SUCCESS) << "never recorded";
  peer_.Must({Ask::kRecordBehindABlock});
  EXPECT_EQ(cuda().cuEventQuery(event), CUDA_ERROR_NOT_READY);
  const CUstream stream = MakeStream(CU_STREAM_NON_BLOCKING);
  ASSERT_EQ(cuda().cuStreamWaitEvent(stream, event, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  peer_.Must({Ask::kUnblock});
  EXPECT_EQ(cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuEventSynchronize(event), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuEventQuery(event), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuEventDestroy(event), CUDA_SUCCESS);
}

TEST_F(IpcEvents, AreRecordedByWhoOpenedThem) {
  const CUevent event = MakeShared();
  peer_.Must({.ask = Ask::kOpenEvent, .handle = {.event = Get(Ipc().get_event, event)}});
  peer_.Must({Ask::kRecordBehindABlock});
  EXPECT_EQ(cuda().cuEventQuery(event), CUDA_ERROR_NOT_READY);
  peer_.Must({Ask::kUnblock});
  EXPECT_EQ(cuda().cuEventSynchronize(event), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuEventRecord(event, nullptr), CUDA_SUCCESS) << "and by their maker again";
  EXPECT_EQ(cuda().cuEventSynchronize(event), CUDA_SUCCESS);
  peer_.Must({Ask::kQueryEvent});
  peer_.Must({Ask::kDestroyEvent});
}

TEST_F(IpcEvents, AreExportedWithTheirRecord) {
  peer_.Must({Ask::kMakeEvent});
  peer_.Must({Ask::kRecordBehindABlock});
  const CUevent event = OpenEventOfPeer();
  EXPECT_EQ(cuda().cuEventQuery(event), CUDA_ERROR_NOT_READY);
  peer_.Must({Ask::kUnblock});
  EXPECT_EQ(cuda().cuEventSynchronize(event), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuEventDestroy(event), CUDA_SUCCESS);
}

TEST_F(IpcEvents, OfAKilledRecorderHoldNobody) {
  COMMPOOL_REQUIRE_EMULATOR("on an H100 (driver 580) the stream, and the event, wait for ever");
  peer_.Must({Ask::kMakeEvent});
  const CUevent event = OpenEventOfPeer();
  peer_.Must({Ask::kRecordBehindABlock});
  const CUstream stream = MakeStream(CU_STREAM_NON_BLOCKING);
  ASSERT_EQ(cuda().cuStreamWaitEvent(stream, event, 0), CUDA_SUCCESS);
  peer_.Kill();
  EXPECT_EQ(cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuEventDestroy(event), CUDA_SUCCESS);
}

}  // namespace
}  // namespace commpool::internal::testing
