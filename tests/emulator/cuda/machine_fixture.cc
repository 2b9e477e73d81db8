#include "tests/emulator/cuda/machine_fixture.h"

#include <algorithm>
#include <cstdlib>
#include <future>
#include <memory>
#include <utility>

namespace commpool::internal::testing {

void DeclareMachine(const char* description) {
  setenv("COMMPOOL_DRIVER", "emulated", 1);
  setenv("COMMPOOL_EMULATOR", description, 1);
}

bool AnyContains(const std::vector<std::string>& lines, const std::string& text) {
  return std::any_of(lines.begin(), lines.end(),
                     [&](const std::string& line) { return line.find(text) != std::string::npos; });
}

struct Gate::State {
  std::promise<commpoolEmulatorOperation> started;
  double start_us = 0;
};

Gate::Gate(CUstream stream, std::optional<commpoolEmulatorRange> range) : state_(new State()) {
  const commpoolEmulatorStart start = [](void* context, commpoolEmulatorOperation operation, const void* const*,
                                         void* const*, double start_us) {
    auto* const state = static_cast<State*>(context);
    state->start_us = start_us;
    state->started.set_value(operation);
  };
  commpoolEmulatorAccess access = {};
  access.name = "gate";
  if (range) {
    access.writes = &*range;
    access.write_count = 1;
  }
  const CUresult result = COMMPOOL_EXTENSION(commpoolEmulatorEnqueue)(stream, &access, start, state_);
  EXPECT_EQ(result, CUDA_SUCCESS);
  if (result == CUDA_SUCCESS) return;
  delete state_;
  state_ = nullptr;
}

void Gate::Open(CUresult result) {
  if (state_ == nullptr) return;
  const std::unique_ptr<State> state(std::exchange(state_, nullptr));
  const commpoolEmulatorOperation operation = state->started.get_future().get();
  COMMPOOL_EXTENSION(commpoolEmulatorComplete)(operation, state->start_us + 1, result);
}

MappedMemory::MappedMemory(const Driver& driver, const CUmemAllocationProp& properties, uint64_t bytes, Access access)
    : range_(AddressRange::Reserve(driver, bytes, 0).value()),
      physical_(PhysicalMemory::Create(driver, bytes, properties).value()),
      mapping_(Mapping::Map(driver, range_.address(), physical_).value()) {
  if (access == Access::kNone) return;
  EXPECT_TRUE(mapping_.SetAccess(properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE).ok());
}

CUevent MachineTest::Record(CUstream stream) {
  const CUevent event = MakeEvent();
  EXPECT_EQ(cuda().cuEventRecord(event, stream), CUDA_SUCCESS);
  return event;
}

void MachineTest::Order(CUstream from, CUstream to) {
  EXPECT_EQ(cuda().cuStreamWaitEvent(to, Record(from), 0), CUDA_SUCCESS);
}

CUresult MachineTest::Launch(CUstream stream, std::vector<commpoolEmulatorRange> writes, double duration_us,
                             std::vector<commpoolEmulatorRange> reads) {
  commpoolEmulatorAccess access = {};
  access.name = "test kernel";
  access.reads = reads.data();
  access.read_count = reads.size();
  access.writes = writes.data();
  access.write_count = writes.size();
  access.duration_us = duration_us;
  const commpoolEmulatorKernel nothing = [](void*, const void* const*, void* const*) {};
  return COMMPOOL_EXTENSION(commpoolEmulatorLaunch)(stream, &access, nothing, nullptr);
}

CUresult MachineTest::Fill(CUdeviceptr address, uint8_t value, uint64_t bytes) {
  const CUresult result = cuda().cuMemsetD8Async(address, value, bytes, nullptr);
  return result == CUDA_SUCCESS ? cuda().cuStreamSynchronize(nullptr) : result;
}

uint8_t MachineTest::FirstByte(CUdeviceptr address) {
  uint8_t value = 0;
  EXPECT_EQ(cuda().cuMemcpyDtoH(&value, address, 1), CUDA_SUCCESS);
  return value;
}

}  // namespace commpool::internal::testing
