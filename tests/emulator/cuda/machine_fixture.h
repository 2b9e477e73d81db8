// What tests of the emulated machine share: a machine declared by the test itself, and streams that stand still until
// they are told to go on.
#ifndef COMMPOOL_TESTS_EMULATOR_CUDA_MACHINE_FIXTURE_H_
#define COMMPOOL_TESTS_EMULATOR_CUDA_MACHINE_FIXTURE_H_

#include <cuda.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/driver/handles.h"
#include "src/emulator/extension.h"
#include "tests/driver/emulator_fixture.h"

namespace commpool::internal::testing {

// A function of src/emulator/extension.h: Extension(&commpoolEmulatorNow) would link it, so it goes by name.
template <typename Function>
Function* ExtensionFunction(const char* name) {
  return reinterpret_cast<Function*>(SharedDriver()->extension(name));
}
#define COMMPOOL_EXTENSION(name) (::commpool::internal::testing::ExtensionFunction<decltype(name)>(#name))

// Makes the emulator the driver and declares its machine. Before the first use of the driver, so from SetUpTestSuite.
void DeclareMachine(const char* description);

// Whether one of the lines contains the text.
bool AnyContains(const std::vector<std::string>& lines, const std::string& text);

// An operation that holds its stream until it is opened.
class Gate {
 public:
  // Declares that it writes `range`, where there is one.
  explicit Gate(CUstream stream, std::optional<commpoolEmulatorRange> range = std::nullopt);
  ~Gate() { Open(); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  // Waits until it is at the head of its stream, and lets the stream go on. Once; later calls do nothing.
  void Open(CUresult result = CUDA_SUCCESS);

 private:
  struct State;
  State* state_;  // owned; the worker's callback holds it until the gate is open
};

// A test with the primary context of one device current. What it makes with Make... is gone at its end.
class MachineTest : public EmulatorTest {
 protected:
  static void SetUpTestSuite() { DeclareMachine(""); }

  explicit MachineTest(int device = 0);
  ~MachineTest() override;

  const CudaDriver& cuda() const { return driver().cuda; }
  CUcontext context() const { return context_.get(); }
  static constexpr uint64_t kUnit = uint64_t{2} << 20;  // the granularity

  CUdeviceptr Allocate(uint64_t bytes = kUnit);
  CUstream MakeStream(unsigned flags = CU_STREAM_NON_BLOCKING);
  CUevent MakeEvent(unsigned flags = CU_EVENT_DEFAULT);
  static CUmemAllocationProp Properties(int device = 0);

  // A kernel that takes so long in virtual time and does nothing with its ranges.
  CUresult Launch(CUstream stream, std::vector<commpoolEmulatorRange> writes, double duration_us = 1,
                  std::vector<commpoolEmulatorRange> reads = {});
  // Sets memory and waits; reads its first byte.
  CUresult Fill(CUdeviceptr address, uint8_t value, uint64_t bytes);
  uint8_t FirstByte(CUdeviceptr address);

 private:
  PrimaryContext context_;
  std::optional<ContextGuard> current_;
  std::vector<CUdeviceptr> allocations_;
  std::vector<CUstream> streams_;
  std::vector<CUevent> events_;
};

}  // namespace commpool::internal::testing

#endif  // COMMPOOL_TESTS_EMULATOR_CUDA_MACHINE_FIXTURE_H_
