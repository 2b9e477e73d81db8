// Memory of cuMemAlloc and events between processes, by handles of 64 bytes.
//
// Source: the driver API's pages on cuIpcGetMemHandle, cuIpcOpenMemHandle, cuIpcCloseMemHandle, cuIpcGetEventHandle and
// cuIpcOpenEventHandle. Where they name no error, it is that of an H200 with driver 580.
#include <cstring>

#include "tests/driver/conformance/conformance_fixture.h"
#include "tests/driver/conformance/peer_process.h"

namespace commpool::internal::testing {
namespace {

constexpr uint64_t kBytes = uint64_t{4} << 20;

class IpcTest : public ConformanceTest {
 protected:
  CUipcMemHandle HandleOf(CUdeviceptr address) {
    CUipcMemHandle handle = {};
    EXPECT_EQ(Ipc().get_memory(&handle, address), CUDA_SUCCESS);
    return handle;
  }
  // Memory that the peer made and filled.
  CUipcMemHandle MadeByPeer(uint8_t value) {
    EXPECT_EQ(peer_.Do(Ask::kAllocate, kBytes).result, CUDA_SUCCESS);
    EXPECT_EQ(peer_.Do(Ask::kFill, value).result, CUDA_SUCCESS);
    return peer_.Do(Ask::kGetMemory).As<CUipcMemHandle>();
  }
  CUresult Open(const CUipcMemHandle& handle, CUdeviceptr* address) {
    return Ipc().open_memory(address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  }

  PeerProcess peer_;
};

using IpcMemory = IpcTest;
using IpcEvents = IpcTest;

TEST_F(IpcMemory, IsTheSameMemoryInTheOtherProcess) {
  const CUdeviceptr memory = Allocate(kBytes);
  Fill(memory, 0x11, kBytes);
  ASSERT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  const CUipcMemHandle handle = HandleOf(memory);
  ASSERT_EQ(peer_.Do(Ask::kOpenMemory, &handle).result, CUDA_SUCCESS);
  EXPECT_EQ(peer_.Do(Ask::kRead).value, 0x11u);
  EXPECT_EQ(peer_.Do(Ask::kFill, 0x22).result, CUDA_SUCCESS);
  EXPECT_EQ(Read(memory, 1)[0], 0x22);
  EXPECT_EQ(peer_.Do(Ask::kCloseMemory).result, CUDA_SUCCESS);
  EXPECT_EQ(peer_.Do(Ask::kCloseMemory).result, CUDA_ERROR_INVALID_VALUE);
}

TEST_F(IpcMemory, OfAPartOpensAsTheWholeAllocation) {
  ASSERT_EQ(peer_.Do(Ask::kAllocate, kBytes).result, CUDA_SUCCESS);
  ASSERT_EQ(peer_.Do(Ask::kFill, 0x33).result, CUDA_SUCCESS);
  const auto handle = peer_.Do(Ask::kGetMemory, kBytes / 2).As<CUipcMemHandle>();
  CUdeviceptr opened = 0;
  ASSERT_EQ(Open(handle, &opened), CUDA_SUCCESS);
  CUdeviceptr base = 0;
  size_t bytes = 0;
  EXPECT_EQ(cuda().cuMemGetAddressRange(&base, &bytes, opened), CUDA_SUCCESS);
  EXPECT_EQ(base, opened);
  EXPECT_GE(bytes, kBytes);
  EXPECT_EQ(Read(opened, 1)[0], 0x33) << "the address is that of the first byte";
  EXPECT_EQ(Ipc().close_memory(opened), CUDA_SUCCESS);
}

TEST_F(IpcMemory, IsOpenOnceAndCountedInAContext) {
  const CUipcMemHandle handle = MadeByPeer(0x44);
  CUdeviceptr first = 0;
  CUdeviceptr second = 0;
  ASSERT_EQ(Open(handle, &first), CUDA_SUCCESS);
  ASSERT_EQ(Open(handle, &second), CUDA_SUCCESS);
  EXPECT_EQ(first, second);
  EXPECT_EQ(Ipc().close_memory(first), CUDA_SUCCESS);
  EXPECT_EQ(Read(first, 1)[0], 0x44) << "still open once";
  EXPECT_EQ(Ipc().close_memory(first), CUDA_SUCCESS);
}

TEST_F(IpcMemory, IsNotOpenedInItsOwnProcess) {
  CUdeviceptr opened = 0;
  const CUipcMemHandle handle = HandleOf(Allocate(kBytes));
  EXPECT_EQ(Open(handle, &opened), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(IpcMemory, IsNotFreedByWhoOpenedIt) {
  CUdeviceptr opened = 0;
  ASSERT_EQ(Open(MadeByPeer(0x55), &opened), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuMemFree(opened), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Ipc().close_memory(opened), CUDA_SUCCESS);
}

TEST_F(IpcMemory, HasNoHandleUnlessCuMemAllocMadeIt) {
  CUipcMemHandle handle = {};
  EXPECT_EQ(Ipc().get_memory(&handle, MakeMapped(granularity()).address()), CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr ordered = 0;
  ASSERT_EQ(cuda().cuMemAllocAsync(&ordered, kBytes, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Ipc().get_memory(&handle, ordered), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda().cuMemFreeAsync(ordered, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(Ipc().get_memory(&handle, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(IpcMemory, IsNotOpenedOnceItIsFreedOrItsProcessIsGone) {
  CUdeviceptr opened = 0;
  const CUipcMemHandle freed = MadeByPeer(0x66);
  ASSERT_EQ(peer_.Do(Ask::kFree).result, CUDA_SUCCESS);
  EXPECT_EQ(Open(freed, &opened), CUDA_ERROR_INVALID_VALUE);
  const CUipcMemHandle lost = MadeByPeer(0x66);
  peer_.Kill();
  EXPECT_EQ(Open(lost, &opened), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(IpcMemory, AKilledOpenerTakesNothing) {
  const CUdeviceptr memory = Allocate(kBytes);
  const CUipcMemHandle handle = HandleOf(memory);
  ASSERT_EQ(peer_.Do(Ask::kOpenMemory, &handle).result, CUDA_SUCCESS);
  ASSERT_EQ(peer_.Do(Ask::kFill, 0x77).result, CUDA_SUCCESS);
  peer_.Kill();
  EXPECT_EQ(Read(memory, 1)[0], 0x77);
  PeerProcess next;
  ASSERT_EQ(next.Do(Ask::kOpenMemory, &handle).result, CUDA_SUCCESS);
  EXPECT_EQ(next.Do(Ask::kRead).value, 0x77u);
  EXPECT_EQ(next.Do(Ask::kCloseMemory).result, CUDA_SUCCESS);
}

TEST_F(IpcMemory, AKilledExporterLeavesWhatIsOpen) {
  CUdeviceptr opened = 0;
  ASSERT_EQ(Open(MadeByPeer(0x21), &opened), CUDA_SUCCESS);
  peer_.Kill();
  EXPECT_EQ(Read(opened, 1)[0], 0x21);
  EXPECT_EQ(Ipc().close_memory(opened), CUDA_SUCCESS);
}

// The page calls it undefined.
TEST_F(IpcMemory, ThatIsFreedWhileItIsOpenIsReported) {
  COMMPOOL_REQUIRE_EMULATOR("hardware leaves it undefined");
  CUdeviceptr memory = 0;
  ASSERT_EQ(cuda().cuMemAlloc(&memory, kBytes), CUDA_SUCCESS);
  const CUipcMemHandle handle = HandleOf(memory);
  ASSERT_EQ(peer_.Do(Ask::kOpenMemory, &handle).result, CUDA_SUCCESS);
  ASSERT_EQ(peer_.Do(Ask::kFill, 0x32).result, CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuMemFree(memory), CUDA_SUCCESS);
  ExpectOneReport({"another process has it open"});
  Fill(Allocate(kBytes), 0x99, kBytes);
  EXPECT_EQ(peer_.Do(Ask::kRead).value, 0x32u) << "who opened it keeps it";
  EXPECT_EQ(peer_.Do(Ask::kCloseMemory).result, CUDA_SUCCESS);
}

TEST_F(IpcEvents, AreExportedIfTheyWereMadeForIt) {
  CUipcEventHandle handle = {};
  EXPECT_EQ(Ipc().get_event(&handle, MakeEvent(CU_EVENT_DISABLE_TIMING)), CUDA_ERROR_INVALID_HANDLE);
  const CUevent event = MakeEvent(CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS);
  ASSERT_EQ(Ipc().get_event(&handle, event), CUDA_SUCCESS);
  CUevent opened = nullptr;
  EXPECT_EQ(Ipc().open_event(&opened, handle), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(IpcEvents, AreDoneWhenTheRecordOfTheOtherProcessIs) {
  ASSERT_EQ(peer_.Do(Ask::kMakeEvent).result, CUDA_SUCCESS);
  const auto handle = peer_.Do(Ask::kGetEvent).As<CUipcEventHandle>();
  CUevent event = nullptr;
  ASSERT_EQ(Ipc().open_event(&event, handle), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuEventQuery(event), CUDA_SUCCESS) << "never recorded";
  ASSERT_EQ(peer_.Do(Ask::kBlock).result, CUDA_SUCCESS);
  ASSERT_EQ(peer_.Do(Ask::kRecord).result, CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuEventQuery(event), CUDA_ERROR_NOT_READY);
  const CUstream stream = MakeStream(CU_STREAM_NON_BLOCKING);
  ASSERT_EQ(cuda().cuStreamWaitEvent(stream, event, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  ASSERT_EQ(peer_.Do(Ask::kUnblock).result, CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuEventSynchronize(event), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuEventQuery(event), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuEventDestroy(event), CUDA_SUCCESS);
}

TEST_F(IpcEvents, AreRecordedByWhoOpenedThem) {
  const CUevent event = MakeEvent(CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS);
  CUipcEventHandle handle = {};
  ASSERT_EQ(Ipc().get_event(&handle, event), CUDA_SUCCESS);
  ASSERT_EQ(peer_.Do(Ask::kOpenEvent, &handle).result, CUDA_SUCCESS);
  ASSERT_EQ(peer_.Do(Ask::kBlock).result, CUDA_SUCCESS);
  ASSERT_EQ(peer_.Do(Ask::kRecord).result, CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuEventQuery(event), CUDA_ERROR_NOT_READY);
  ASSERT_EQ(peer_.Do(Ask::kUnblock).result, CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuEventSynchronize(event), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuEventRecord(event, nullptr), CUDA_SUCCESS) << "and by their maker again";
  EXPECT_EQ(cuda().cuEventSynchronize(event), CUDA_SUCCESS);
  EXPECT_EQ(peer_.Do(Ask::kQueryEvent).result, CUDA_SUCCESS);
  EXPECT_EQ(peer_.Do(Ask::kDestroyEvent).result, CUDA_SUCCESS);
}

TEST_F(IpcEvents, AreExportedWithTheirRecord) {
  ASSERT_EQ(peer_.Do(Ask::kMakeEvent).result, CUDA_SUCCESS);
  ASSERT_EQ(peer_.Do(Ask::kBlock).result, CUDA_SUCCESS);
  ASSERT_EQ(peer_.Do(Ask::kRecord).result, CUDA_SUCCESS);
  const auto handle = peer_.Do(Ask::kGetEvent).As<CUipcEventHandle>();
  CUevent event = nullptr;
  ASSERT_EQ(Ipc().open_event(&event, handle), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuEventQuery(event), CUDA_ERROR_NOT_READY);
  ASSERT_EQ(peer_.Do(Ask::kUnblock).result, CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuEventSynchronize(event), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuEventDestroy(event), CUDA_SUCCESS);
}

TEST_F(IpcEvents, OfAKilledRecorderHoldNobody) {
  COMMPOOL_REQUIRE_EMULATOR("on an H100 (driver 580) the stream, and the event, wait for ever");
  ASSERT_EQ(peer_.Do(Ask::kMakeEvent).result, CUDA_SUCCESS);
  const auto handle = peer_.Do(Ask::kGetEvent).As<CUipcEventHandle>();
  CUevent event = nullptr;
  ASSERT_EQ(Ipc().open_event(&event, handle), CUDA_SUCCESS);
  ASSERT_EQ(peer_.Do(Ask::kBlock).result, CUDA_SUCCESS);
  ASSERT_EQ(peer_.Do(Ask::kRecord).result, CUDA_SUCCESS);
  const CUstream stream = MakeStream(CU_STREAM_NON_BLOCKING);
  ASSERT_EQ(cuda().cuStreamWaitEvent(stream, event, 0), CUDA_SUCCESS);
  peer_.Kill();
  EXPECT_EQ(cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuEventDestroy(event), CUDA_SUCCESS);
}

}  // namespace
}  // namespace commpool::internal::testing
