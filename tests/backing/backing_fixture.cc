#include "tests/backing/backing_fixture.h"

#include "src/library/driver/device_info.h"

namespace commpool::internal::testing {

namespace {

void* Allocate(ptrdiff_t bytes, int device, CUstream_st* stream, void* context) {
  LastUserCall() = {bytes, device, stream, context};
  CUdeviceptr address = 0;
  const CUresult result = SharedDriver()->cuda.cuMemAlloc(&address, static_cast<size_t>(bytes));
  return result == CUDA_SUCCESS ? reinterpret_cast<void*>(address) : nullptr;
}

void Free(void* pointer, ptrdiff_t bytes, int device, CUstream_st* stream, void* context) {
  LastUserCall() = {bytes, device, stream, context};
  EXPECT_EQ(SharedDriver()->cuda.cuMemFree(reinterpret_cast<CUdeviceptr>(pointer)), CUDA_SUCCESS);
}

// The answer of DriverWhere(). Global, because the table's functions have no context.
struct {
  CUdevice_attribute attribute;
  int value;
} g_answer;

std::vector<PrimaryContext>* RetainAllContexts() {
  auto* contexts = new std::vector<PrimaryContext>;
  for (int device = 0; device < DeviceCountOfTests(); ++device) {
    contexts->push_back(PrimaryContext::Retain(*SharedDriver(), device).value());
  }
  return contexts;
}

}  // namespace

Placement OnDevice(int device) { return {.device = device}; }

Placement OnHost(int node) { return {.kind = Placement::Kind::kHostNuma, .device = 0, .numa_node = node}; }

UserAllocator WorkingUserAllocator() { return {Allocate, Free, nullptr}; }

UserCall& LastUserCall() {
  static UserCall call;
  return call;
}

Driver DriverWhere(CUdevice_attribute attribute, int answer) {
  g_answer = {attribute, answer};
  Driver driver = *SharedDriver();
  driver.cuda.cuDeviceGetAttribute = [](int* value, CUdevice_attribute asked, CUdevice device) {
    if (asked != g_answer.attribute) return SharedDriver()->cuda.cuDeviceGetAttribute(value, asked, device);
    *value = g_answer.value;
    return CUDA_SUCCESS;
  };
  return driver;
}

// A context that nobody retains is destroyed, and hardware takes long to make it again. So keep it until the end.
BackingTest::BackingTest() {
  if (OnEmulator()) return;
  static const std::vector<PrimaryContext>* const contexts = RetainAllContexts();
  (void)contexts;
}

void BackingTest::TearDown() {
  PrimaryContext owner = PrimaryContext::Retain(driver(), 0).value();
  for (int peer = 1; peer < DeviceCountOfTests(); ++peer) {
    const CurrentContext accessor(peer);
    cuda().cuCtxDisablePeerAccess(owner.get());  // fails where access was not enabled
  }
}

void BackingTest::ExpectFailureOf(const Fault& fault, const std::function<Status()>& act, const char* file, int line) {
  const ::testing::ScopedTrace trace(file, line, fault.call);
  const InjectedFault injected(fault);
  ExpectMessage(act(), fault.call);
}

CUresult BackingTest::Fill(int device, CUdeviceptr address, uint8_t value, uint64_t bytes) {
  const CurrentContext context(device);
  const CUresult result = cuda().cuMemsetD8Async(address, value, bytes, nullptr);
  return result == CUDA_SUCCESS ? cuda().cuCtxSynchronize() : result;
}

CUresult BackingTest::Read(int device, CUdeviceptr address, std::vector<uint8_t>* bytes) {
  const CurrentContext context(device);
  return cuda().cuMemcpyDtoH(bytes->data(), address, bytes->size());
}

std::vector<uint8_t> BackingTest::Read(int device, CUdeviceptr address, uint64_t bytes) {
  std::vector<uint8_t> read(bytes);
  EXPECT_EQ(Read(device, address, &read), CUDA_SUCCESS);
  return read;
}

unsigned long long BackingTest::AccessOf(int id, CUdeviceptr address, CUmemLocationType type) {
  const CUmemLocation location{.type = type, .id = id};
  unsigned long long flags = ~0ull;
  EXPECT_EQ(cuda().cuMemGetAccess(&flags, &location, address), CUDA_SUCCESS);
  return flags;
}

int BackingTest::ReachablePeer() const {
  for (int peer = 1; peer < DeviceCountOfTests(); ++peer) {
    if (CheckReachable(driver(), peer, 0).ok()) return peer;
  }
  return -1;
}

}  // namespace commpool::internal::testing
