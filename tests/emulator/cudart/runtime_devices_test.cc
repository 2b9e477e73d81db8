// Devices, contexts, errors and entry points of the emulated runtime.
#include <sstream>
#include <string>
#include <thread>

#include "tests/emulator/cudart/runtime_fixture.h"

namespace commpool::internal::testing {
namespace {

class RuntimeDevices : public RuntimeTest {};

// The functions of libcudart.so.13 that the libraries of the PyTorch 2.15.0 wheel (CUDA 13) import.
constexpr const char* kTorchImports =
    "cudaDeviceCanAccessPeer cudaDeviceEnablePeerAccess cudaDeviceGetAttribute cudaDeviceGetDefaultMemPool "
    "cudaDeviceGetGraphMemAttribute cudaDeviceGetPCIBusId cudaDeviceGetStreamPriorityRange "
    "cudaDeviceSetGraphMemAttribute cudaDeviceSynchronize cudaDriverGetVersion cudaEventCreate "
    "cudaEventCreateWithFlags cudaEventDestroy cudaEventElapsedTime cudaEventQuery cudaEventRecord "
    "cudaEventRecordWithFlags cudaEventSynchronize cudaFree cudaFreeAsync cudaFreeHost cudaFuncGetAttributes "
    "cudaFuncSetAttribute cudaGetDevice cudaGetDeviceCount cudaGetDeviceProperties cudaGetDriverEntryPointByVersion "
    "cudaGetErrorName cudaGetErrorString cudaGetLastError cudaGetSymbolAddress cudaGraphAddNode "
    "cudaGraphConditionalHandleCreate cudaGraphDestroy cudaGraphExecDestroy cudaGraphGetNodes cudaGraphInstantiate "
    "cudaGraphInstantiateWithFlags cudaGraphLaunch cudaGraphNodeGetDependencies cudaGraphRetainUserObject "
    "cudaHostAlloc cudaHostRegister cudaHostUnregister cudaIpcCloseMemHandle cudaIpcGetEventHandle "
    "cudaIpcGetMemHandle cudaIpcOpenEventHandle cudaIpcOpenMemHandle cudaKernelSetAttributeForDevice "
    "cudaLaunchCooperativeKernel cudaLaunchHostFunc cudaLaunchKernel cudaLaunchKernelExC cudaLibraryGetGlobal "
    "cudaLibraryGetKernel cudaLibraryGetKernelCount cudaLibraryGetManaged cudaLibraryGetUnifiedFunction "
    "cudaLibraryLoadData cudaLibraryLoadFromFile cudaLibraryUnload cudaMalloc cudaMallocAsync cudaMallocHost "
    "cudaMallocManaged cudaMemGetInfo cudaMemPoolGetAttribute cudaMemPoolSetAccess cudaMemPoolSetAttribute "
    "cudaMemPoolTrimTo cudaMemcpy2DAsync cudaMemcpy cudaMemcpyAsync cudaMemcpyPeerAsync cudaMemcpyToSymbol "
    "cudaMemset cudaMemsetAsync cudaOccupancyMaxActiveBlocksPerMultiprocessor "
    "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags cudaPeekAtLastError cudaPointerGetAttributes "
    "cudaProfilerStart cudaProfilerStop cudaRuntimeGetVersion cudaSetDevice cudaStreamAddCallback "
    "cudaStreamBeginCapture cudaStreamBeginCaptureToGraph cudaStreamCreate cudaStreamCreateWithFlags "
    "cudaStreamCreateWithPriority cudaStreamDestroy cudaStreamEndCapture cudaStreamGetCaptureInfo "
    "cudaStreamGetPriority cudaStreamIsCapturing cudaStreamQuery cudaStreamSynchronize "
    "cudaStreamUpdateCaptureDependencies cudaStreamWaitEvent cudaThreadExchangeStreamCaptureMode "
    "cudaUserObjectCreate cudaUserObjectRelease __cudaGetKernel __cudaLaunchKernel __cudaPopCallConfiguration "
    "__cudaPushCallConfiguration __cudaRegisterFatBinary __cudaRegisterFatBinaryEnd __cudaRegisterFunction "
    "__cudaRegisterVar __cudaUnregisterFatBinary";

TEST(RuntimeImports, AreAllThere) {
  int count = 0;
  std::istringstream names(kTorchImports);
  for (std::string name; names >> name; ++count) RuntimeSymbol(name.c_str());
  EXPECT_EQ(count, 113);
}

TEST_F(RuntimeDevices, AreThoseOfTheMachine) {
  EXPECT_EQ(Get(COMMPOOL_RUNTIME(cudaGetDeviceCount)), 4);
  cudaDeviceProp properties = Get(COMMPOOL_RUNTIME(cudaGetDeviceProperties), 1);
  EXPECT_EQ(properties.major, 9);
  EXPECT_EQ(properties.multiProcessorCount, 132);
  EXPECT_EQ(properties.warpSize, 32);
  EXPECT_EQ(properties.maxThreadsPerMultiProcessor, 2048);
  EXPECT_EQ(properties.sharedMemPerBlockOptin, 232448u);
  EXPECT_EQ(properties.totalGlobalMem, size_t{141} << 30);
  EXPECT_EQ(properties.pciBusID, 2);
  EXPECT_EQ(Get(COMMPOOL_RUNTIME(cudaDeviceGetAttribute), cudaDevAttrMaxThreadsPerBlock, 3), 1024);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaGetDeviceProperties)(&properties, 4), cudaErrorInvalidDevice);
}

TEST_F(RuntimeDevices, HaveNoContextBeforeTheyAreUsed) {
  const auto active = [](int device) {
    unsigned flags = 0;
    int value = 0;
    EXPECT_EQ(COMMPOOL_DRIVER_CALL(cuDevicePrimaryCtxGetState)(device, &flags, &value), CUDA_SUCCESS);
    return value;
  };
  Get(COMMPOOL_RUNTIME(cudaGetDeviceProperties), 3);
  EXPECT_EQ(active(3), 0);
  std::thread([&] {
    EXPECT_EQ(CurrentDevice(), 0) << "every thread begins with the first";
    EXPECT_EQ(COMMPOOL_RUNTIME(cudaSetDevice)(3), cudaSuccess);
    EXPECT_EQ(active(3), 1);
    EXPECT_EQ(CurrentDevice(), 3);
  }).join();
  EXPECT_EQ(active(3), 1) << "contexts outlive the thread that made them";
  EXPECT_EQ(CurrentDevice(), 0);
}

TEST_F(RuntimeDevices, FollowTheDriversCurrentContext) {
  CUcontext context = nullptr;
  ASSERT_EQ(COMMPOOL_DRIVER_CALL(cuDevicePrimaryCtxRetain)(&context, 2), CUDA_SUCCESS);
  ASSERT_EQ(COMMPOOL_DRIVER_CALL(cuCtxSetCurrent)(context), CUDA_SUCCESS);
  EXPECT_EQ(CurrentDevice(), 2);
  EXPECT_EQ(AttributesOf(Allocate()).device, 2);
  EXPECT_EQ(COMMPOOL_DRIVER_CALL(cuDevicePrimaryCtxRelease)(2), CUDA_SUCCESS);
}

TEST_F(RuntimeDevices, ReachTheirPeers) {
  EXPECT_EQ(Get(COMMPOOL_RUNTIME(cudaDeviceCanAccessPeer), 0, 1), 1);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaDeviceEnablePeerAccess)(1, 0), cudaSuccess);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaDeviceEnablePeerAccess)(1, 0), cudaErrorPeerAccessAlreadyEnabled);
}

TEST_F(RuntimeDevices, AreToldMemoryOfOthersWhereTheyReachIt) {
  void* const memory = Allocate();
  const auto address_for = [memory](int device) {
    EXPECT_EQ(COMMPOOL_RUNTIME(cudaSetDevice)(device), cudaSuccess);
    const cudaPointerAttributes attributes = AttributesOf(memory);
    EXPECT_EQ(attributes.device, 0);
    return attributes.devicePointer;
  };
  EXPECT_EQ(address_for(0), memory);
  EXPECT_EQ(address_for(1), nullptr);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaDeviceEnablePeerAccess)(0, 0), cudaSuccess);
  EXPECT_EQ(address_for(1), memory);
  EXPECT_EQ(address_for(2), nullptr);
}

TEST_F(RuntimeDevices, KeepTheLastErrorUntilItIsAskedFor) {
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaSetDevice)(99), cudaErrorInvalidDevice);
  EXPECT_EQ(CurrentDevice(), 0);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaPeekAtLastError)(), cudaErrorInvalidDevice) << "a success does not end it";
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaGetLastError)(), cudaErrorInvalidDevice);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaGetLastError)(), cudaSuccess);
  std::thread([] { EXPECT_EQ(COMMPOOL_RUNTIME(cudaPeekAtLastError)(), cudaSuccess) << "of a thread"; }).join();
  EXPECT_STREQ(COMMPOOL_RUNTIME(cudaGetErrorString)(cudaErrorInvalidDevice), "invalid device ordinal");
  EXPECT_STREQ(COMMPOOL_RUNTIME(cudaGetErrorName)(cudaErrorMemoryAllocation), "cudaErrorMemoryAllocation");
  EXPECT_STREQ(COMMPOOL_RUNTIME(cudaGetErrorString)(static_cast<cudaError_t>(12345)), "unrecognized error code");
}

TEST_F(RuntimeDevices, GiveTheDriversFunctions) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const auto ask = COMMPOOL_RUNTIME(cudaGetDriverEntryPointByVersion);
  EXPECT_EQ(ask("cuMemCreate", &function, 13020, cudaEnableDefault, &found), cudaSuccess);
  EXPECT_EQ(function, DriverSymbol("cuMemCreate")) << "a newer program gets what this driver has";
  EXPECT_EQ(found, cudaDriverEntryPointSuccess);
  EXPECT_EQ(ask("cuLogsRegisterCallback", &function, 13000, cudaEnableDefault, &found), cudaSuccess);
  EXPECT_EQ(function, nullptr) << "what the emulator lacks is not found";
  EXPECT_EQ(found, cudaDriverEntryPointSymbolNotFound);
}

TEST_F(RuntimeDevices, RefuseWhatIsNotEmulated) {
  void* memory = nullptr;
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaMallocManaged)(&memory, 1, cudaMemAttachGlobal), cudaErrorNotSupported);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaGraphDebugDotPrint)(nullptr, "graph.dot", 0), cudaErrorNotSupported);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaGetLastError)(), cudaErrorNotSupported);
}

}  // namespace
}  // namespace commpool::internal::testing
