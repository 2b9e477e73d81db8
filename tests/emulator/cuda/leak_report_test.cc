// Live resources are listed, one line each, as long as they live.
#include <functional>
#include <optional>
#include <type_traits>

#include "tests/emulator/cuda/machine_fixture.h"

namespace commpool::internal::testing {
namespace {

class LeakReport : public MachineTest {
 protected:
  // Expects one more line, which contains `name`, between making and giving back.
  void ExpectListed(const char* name, const std::function<void()>& make, const std::function<void()>& give_back) {
    const std::vector<std::string> before = EmulatorLeaks();
    make();
    std::vector<std::string> during = EmulatorLeaks();
    EXPECT_EQ(during.size(), before.size() + 1) << name;
    for (const std::string& line : before) std::erase(during, line);
    EXPECT_TRUE(AnyContains(during, name)) << name << ": " << (during.empty() ? "nothing" : during[0]);
    give_back();
    EXPECT_EQ(EmulatorLeaks(), before) << name;
  }
  // What `make` returns gives the resource back.
  template <typename Make>
  void ExpectListed(const char* name, const Make& make) {
    std::optional<std::invoke_result_t<Make>> owner;
    ExpectListed(
        name, [&] { owner.emplace(make()); }, [&] { owner.reset(); });
  }
};

TEST_F(LeakReport, ListsAllocations) {
  CUdeviceptr memory = 0;
  ExpectListed(
      "cuMemAlloc memory", [&] { memory = NewMemory(12345); },
      [&] { EXPECT_EQ(cuda().cuMemFree(memory), CUDA_SUCCESS); });
  void* pinned = nullptr;
  ExpectListed(
      "pinned host memory", [&] { EXPECT_EQ(cuda().cuMemAllocHost(&pinned, 12345), CUDA_SUCCESS); },
      [&] { EXPECT_EQ(cuda().cuMemFreeHost(pinned), CUDA_SUCCESS); });
}

TEST_F(LeakReport, ListsAddressesHandlesAndMappings) {
  const auto reserve = [&] { return AddressRange::Reserve(driver(), kUnit, 0).value(); };
  const auto create = [&] { return PhysicalMemory::Create(driver(), kUnit, Properties()).value(); };
  ExpectListed("reserved addresses", reserve);
  ExpectListed("physical memory of 2097152 bytes", create);
  const AddressRange range = reserve();
  const PhysicalMemory physical = create();
  ExpectListed("mapping", [&] { return Mapping::Map(driver(), range.address(), physical).value(); });
}

TEST_F(LeakReport, ListsStreamsAndEvents) {
  CUstream stream = nullptr;
  ExpectListed(
      "stream", [&] { EXPECT_EQ(cuda().cuStreamCreate(&stream, CU_STREAM_DEFAULT), CUDA_SUCCESS); },
      [&] { EXPECT_EQ(cuda().cuStreamDestroy(stream), CUDA_SUCCESS); });
  CUevent event = nullptr;
  ExpectListed(
      "event", [&] { EXPECT_EQ(cuda().cuEventCreate(&event, CU_EVENT_DEFAULT), CUDA_SUCCESS); },
      [&] { EXPECT_EQ(cuda().cuEventDestroy(event), CUDA_SUCCESS); });
}

TEST_F(LeakReport, ListsRetainedContexts) {
  ExpectListed("primary context of device 3", [&] { return PrimaryContext::Retain(driver(), 3).value(); });
}

TEST_F(LeakReport, ListsWhatOtherLibrariesNote) {
  const auto note = COMMPOOL_EXTENSION(commpoolEmulatorNoteResource);
  const auto forget = COMMPOOL_EXTENSION(commpoolEmulatorForgetResource);
  const int identity = 0;
  ExpectListed(
      "communicator: rank 0 of 2", [&] { note("communicator", &identity, "rank 0 of 2"); },
      [&] { forget("communicator", &identity); });
}

TEST_F(LeakReport, ListsNoStreamThatIsThereAnyhow) {
  const std::vector<std::string> before = EmulatorLeaks();
  for (const CUstream lasting : {CUstream{nullptr}, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
    ASSERT_EQ(Launch(lasting, {}), CUDA_SUCCESS);
  }
  ASSERT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(EmulatorLeaks(), before);
}

TEST_F(LeakReport, IsCutAtTheCapacityAndStillCountsAll) {
  const auto leaks = COMMPOOL_EXTENSION(commpoolEmulatorLeaks);
  Allocate();
  const size_t lines = leaks(nullptr, 0);
  EXPECT_GE(lines, 2u) << "the context and the memory";
  char text[8] = "1234567";
  EXPECT_EQ(leaks(text, 4), lines);
  EXPECT_EQ(text[3], '\0');
  EXPECT_EQ(text[4], '5') << "not a byte more";
}

}  // namespace
}  // namespace commpool::internal::testing
