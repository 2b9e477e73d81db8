// Unordered accesses are always reported, however the emulator happened to run them; ordered accesses never.
#include <functional>
#include <future>
#include <thread>

#include "tests/driver/capturing.h"
#include "tests/emulator/cuda/machine_fixture.h"

namespace commpool::internal::testing {
namespace {

class Races : public Capturing<MachineTest> {
 protected:
  void Write(CUstream stream, uint64_t offset = 0, uint64_t bytes = kUnit) {
    ASSERT_EQ(Launch(stream, {{memory_ + offset, bytes}}), CUDA_SUCCESS);
  }
  void Read(CUstream stream, uint64_t offset = 0, uint64_t bytes = kUnit) {
    ASSERT_EQ(Launch(stream, {}, 1, {{memory_ + offset, bytes}}), CUDA_SUCCESS);
  }

  // Once all work is done.
  size_t RacesReported() {
    cuda().cuCtxSynchronize();
    const std::vector<std::string> reports = TakeReports();
    for (const std::string& report : reports) EXPECT_EQ(report.rfind("race: ", 0), 0u) << report;
    return reports.size();
  }
  size_t RacesOfAWriteOn(CUstream stream) {
    Write(stream);
    return RacesReported();
  }

  const CUdeviceptr memory_ = Allocate();
  const CUstream first_ = MakeStream();
  const CUstream second_ = MakeStream();
};

TEST_F(Races, TwoWritesOnTwoStreamsAreOne) {
  Write(first_);
  EXPECT_EQ(RacesOfAWriteOn(second_), 1u);
}

// The call returns once the driver has copied the pageable memory. The write to the device may still run.
TEST_F(Races, ACopyFromPageableMemoryIsOrderedWithItsOwnStreamAlone) {
  for (const uint64_t bytes : {uint64_t{512}, kUnit}) {
    const std::vector<uint8_t> values(bytes, 7);
    ASSERT_EQ(cuda().cuMemcpyHtoD(memory_, values.data(), bytes), CUDA_SUCCESS);
    Read(first_);
    EXPECT_EQ(RacesReported(), 1u) << bytes;
    ASSERT_EQ(cuda().cuMemcpyHtoDAsync(memory_, values.data(), bytes, first_), CUDA_SUCCESS);
    Read(first_);
    cuda().cuCtxSynchronize();
    ASSERT_EQ(cuda().cuMemcpyHtoD(memory_, values.data(), bytes), CUDA_SUCCESS);
    ASSERT_EQ(cuda().cuStreamSynchronize(nullptr), CUDA_SUCCESS);
    Read(second_);
    EXPECT_EQ(RacesReported(), 0u) << bytes;
  }
}

TEST_F(Races, AReportNamesBothOperationsAndWhereTheyWereIssued) {
  ASSERT_EQ(cuda().cuMemsetD8Async(memory_, 1, 100, first_), CUDA_SUCCESS);
  Read(second_, 50, 100);
  cuda().cuCtxSynchronize();
  EXPECT_FALSE(AnyContains(EmulatorReports(), "libcuda")) << "the driver's own frames help nobody";
  ExpectOneReport({"race: ", "cuMemsetD8Async of stream ", " writes 0x", "test kernel of stream ", " reads 0x",
                   "share 50 bytes", "issued at ", "AReportNamesBothOperations", "races_test+0x"});
}

// Two places of a program that issue work through the same function, from the same place on the stack. The call is not
// the last statement, so it cannot become a jump.
[[gnu::noinline]] void IssueHere(const std::function<void()>& issue, int& issued) {
  issue();
  ++issued;
}
[[gnu::noinline]] void IssueThere(const std::function<void()>& issue, int& issued) {
  issue();
  ++issued;
}

TEST_F(Races, AReportTellsCallersOfOneFunctionApart) {
  int issued = 0;
  for (int round = 0; round < 3; ++round) {
    for (const CUstream stream : {first_, second_}) {
      const auto caller = stream == first_ ? &IssueHere : &IssueThere;
      caller([&] { Write(stream); }, issued);
    }
    cuda().cuCtxSynchronize();
    ExpectOneReport({"IssueHere", "IssueThere"});
  }
}

TEST_F(Races, ReadsAreNone) {
  Read(first_);
  Read(second_);
  EXPECT_EQ(RacesReported(), 0u);
}

TEST_F(Races, AWriteAfterAReadIsOne) {
  Read(first_);
  EXPECT_EQ(RacesOfAWriteOn(second_), 1u);
}

TEST_F(Races, OneByteInCommonIsEnough) {
  Write(first_, 0, 101);
  Write(second_, 100, 100);
  Write(second_, 200, 100);
  EXPECT_EQ(RacesReported(), 1u);
}

TEST_F(Races, NeighboursAreNone) {
  Write(first_, 0, 100);
  Write(second_, 100, 100);
  EXPECT_EQ(RacesReported(), 0u);
}

TEST_F(Races, OneStreamHasNone) {
  Write(first_);
  Read(first_);
  EXPECT_EQ(RacesOfAWriteOn(first_), 0u);
}

TEST_F(Races, AnOperationHasNoneWithItself) {
  ASSERT_EQ(Launch(first_, {{memory_, 100}}, 1, {{memory_, 100}}), CUDA_SUCCESS);
  EXPECT_EQ(RacesReported(), 0u);
}

TEST_F(Races, TwoOperationsAreReportedOnce) {
  ASSERT_EQ(Launch(first_, {{memory_, 100}, {memory_ + 200, 100}}, 1, {{memory_, 100}}), CUDA_SUCCESS);
  ASSERT_EQ(Launch(second_, {{memory_, 100}, {memory_ + 200, 100}}, 1, {{memory_, 100}}), CUDA_SUCCESS);
  EXPECT_EQ(RacesReported(), 1u);
}

TEST_F(Races, AnEventOrders) {
  Write(first_);
  Order(first_, second_);
  EXPECT_EQ(RacesOfAWriteOn(second_), 0u);
}

TEST_F(Races, AnEventRecordedTooEarlyDoesNot) {
  const CUevent event = MakeEvent();
  ASSERT_EQ(cuda().cuEventRecord(event, first_), CUDA_SUCCESS);
  Write(first_);
  ASSERT_EQ(cuda().cuStreamWaitEvent(second_, event, 0), CUDA_SUCCESS);
  EXPECT_EQ(RacesOfAWriteOn(second_), 1u);
}

TEST_F(Races, EventsOrderAcrossAThirdStream) {
  const CUstream third = MakeStream();
  Write(first_);
  Order(first_, third);
  Order(third, second_);
  EXPECT_EQ(RacesOfAWriteOn(second_), 0u);
}

TEST_F(Races, SynchronisingOrders) {
  const CUevent event = MakeEvent();
  Write(first_);
  ASSERT_EQ(cuda().cuStreamSynchronize(first_), CUDA_SUCCESS);
  Write(second_);
  ASSERT_EQ(cuda().cuEventRecord(event, second_), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuEventSynchronize(event), CUDA_SUCCESS);
  Write(first_);
  ASSERT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(RacesOfAWriteOn(second_), 0u);
}

TEST_F(Races, SynchronisingAnotherStreamDoesNot) {
  Write(first_);
  ASSERT_EQ(cuda().cuStreamSynchronize(second_), CUDA_SUCCESS);
  EXPECT_EQ(RacesOfAWriteOn(second_), 1u);
}

TEST_F(Races, SynchronisingAfterBothWereSubmittedDoesNot) {
  Gate gate(second_);
  Write(second_);
  Write(first_);
  ASSERT_EQ(cuda().cuStreamSynchronize(first_), CUDA_SUCCESS);
  gate.Open();
  EXPECT_EQ(RacesReported(), 1u);
}

TEST_F(Races, ASuccessfulQueryOrders) {
  const CUevent event = MakeEvent();
  Write(first_);
  while (cuda().cuStreamQuery(first_) == CUDA_ERROR_NOT_READY) std::this_thread::yield();
  Write(second_);
  ASSERT_EQ(cuda().cuEventRecord(event, second_), CUDA_SUCCESS);
  while (cuda().cuEventQuery(event) == CUDA_ERROR_NOT_READY) std::this_thread::yield();
  EXPECT_EQ(RacesOfAWriteOn(first_), 0u);
}

// Waits for the stream's work with a host function, which is no synchronisation.
class Ended {
 public:
  Ended(const CudaDriver& cuda, CUstream stream) {
    EXPECT_EQ(cuda.cuLaunchHostFunc(
                  stream, [](void* self) { static_cast<Ended*>(self)->done_.set_value(); }, this),
              CUDA_SUCCESS);
    done_.get_future().wait();
  }

 private:
  std::promise<void> done_;
};

// Has the name of one in PyTorch, which asks whether collectives are done.
namespace c10d {
struct Watchdog {
  [[gnu::noinline]] static CUresult Ask(const CudaDriver& cuda, CUevent event) {
    const CUresult answer = cuda.cuEventQuery(event);
    return answer == CUDA_ERROR_NOT_READY ? answer : CUDA_SUCCESS;
  }
};
}  // namespace c10d

TEST_F(Races, AWatchdogHearsLateOfWhatTheHostDoesNotKnow) {
  const CUevent event = MakeEvent();
  Write(first_);
  ASSERT_EQ(cuda().cuEventRecord(event, first_), CUDA_SUCCESS);
  const Ended ended(cuda(), first_);
  EXPECT_EQ(c10d::Watchdog::Ask(cuda(), event), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(RacesOfAWriteOn(second_), 1u);
  EXPECT_EQ(c10d::Watchdog::Ask(cuda(), event), CUDA_SUCCESS) << "the host has waited";
}

// A group that ends asks about one collective after the other: what is long done delays it once, not each time.
TEST_F(Races, AWatchdogHearsThoughTheHostNeverWaits) {
  std::vector<CUevent> events;
  for (int number = 0; number < 100; ++number) {
    events.push_back(MakeEvent());
    Write(first_);
    ASSERT_EQ(cuda().cuEventRecord(events.back(), first_), CUDA_SUCCESS);
  }
  for (const CUevent event : events) {
    while (c10d::Watchdog::Ask(cuda(), event) == CUDA_ERROR_NOT_READY) std::this_thread::yield();
  }
  EXPECT_EQ(RacesOfAWriteOn(second_), 0u);
}

TEST_F(Races, AQueryThatSaysNotReadyDoesNot) {
  Gate gate(first_);
  Write(first_);
  EXPECT_EQ(cuda().cuStreamQuery(first_), CUDA_ERROR_NOT_READY);
  Write(second_);
  gate.Open();
  EXPECT_EQ(RacesReported(), 1u);
}

TEST_F(Races, TheLegacyStreamOrdersBlockingStreams) {
  const CUstream blocking = MakeStream(CU_STREAM_DEFAULT);
  const CUstream other = MakeStream(CU_STREAM_DEFAULT);
  Write(blocking);
  Write(nullptr);
  EXPECT_EQ(RacesOfAWriteOn(other), 0u);
}

TEST_F(Races, TheLegacyStreamOrdersWhatHasRunAlready) {
  const CUstream blocking = MakeStream(CU_STREAM_DEFAULT);
  Write(blocking);
  Write(blocking, 0, 1);
  Write(nullptr);
  const CUstream gone = NewStream(CU_STREAM_DEFAULT);
  Write(gone);
  ASSERT_EQ(cuda().cuStreamDestroy(gone), CUDA_SUCCESS);
  EXPECT_EQ(RacesOfAWriteOn(nullptr), 0u);
}

TEST_F(Races, TheLegacyStreamDoesNotOrderOthers) {
  Write(first_);
  EXPECT_EQ(RacesOfAWriteOn(nullptr), 1u);
}

TEST_F(Races, SynchronisingTheContextWaitsForStreamsThatAreGone) {
  const CUstream gone = NewStream();
  Write(gone);
  ASSERT_EQ(cuda().cuStreamDestroy(gone), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(RacesOfAWriteOn(first_), 0u);
}

TEST_F(Races, DestroyingAStreamOrdersNothing) {
  const CUstream gone = NewStream();
  Write(gone);
  ASSERT_EQ(cuda().cuStreamDestroy(gone), CUDA_SUCCESS);
  EXPECT_EQ(RacesOfAWriteOn(MakeStream()), 1u);
}

TEST_F(Races, TheCallbackOfAGraphThatWasDestroyedInFlightOrders) {
  std::promise<void> ended;
  const CUhostFn end = [](void* promise) { static_cast<std::promise<void>*>(promise)->set_value(); };
  const CUuserObject object = Get(cuda().cuUserObjectCreate, &ended, end, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
  Begin(first_, CU_STREAM_CAPTURE_MODE_RELAXED);
  Write(first_);
  const CUgraph graph = End(first_);
  ASSERT_EQ(cuda().cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE), CUDA_SUCCESS);
  const CUgraphExec replay = Instantiate(graph);
  ASSERT_EQ(cuda().cuGraphLaunch(replay, first_), CUDA_SUCCESS);
  ASSERT_EQ(Destroy(replay), CUDA_SUCCESS);
  ASSERT_EQ(Destroy(graph), CUDA_SUCCESS);
  ended.get_future().wait();
  EXPECT_EQ(RacesOfAWriteOn(second_), 0u);
}

TEST_F(Races, ACopyToTheHostWaits) {
  Write(first_);
  std::vector<char> host(kUnit);
  ASSERT_EQ(cuda().cuMemcpyDtoHAsync(host.data(), memory_, kUnit, first_), CUDA_SUCCESS);
  EXPECT_EQ(RacesOfAWriteOn(second_), 0u);
}

TEST_F(Races, ACopyReadsAndWrites) {
  const CUdeviceptr other = Allocate();
  ASSERT_EQ(cuda().cuMemcpyDtoDAsync(other, memory_, kUnit, first_), CUDA_SUCCESS);
  Read(second_);
  ASSERT_EQ(Launch(second_, {}, 1, {{other, kUnit}}), CUDA_SUCCESS);
  EXPECT_EQ(RacesReported(), 1u);
}

TEST_F(Races, AHostFunctionTellsTheDriverNothing) {
  Write(first_);
  ASSERT_EQ(cuda().cuLaunchHostFunc(
                first_, [](void*) {}, nullptr),
            CUDA_SUCCESS);
  EXPECT_EQ(RacesOfAWriteOn(second_), 1u);
}

TEST_F(Races, ManyOperationsOnManyPlacesStaySmall) {
  constexpr uint64_t kPlaces = 8192;
  for (uint64_t index = 0; index < 4 * kPlaces; ++index) {
    Write(index % 2 == 0 ? first_ : second_, (index % kPlaces) * 128, 128);
    if (index % 1024 == 1023) cuda().cuCtxSynchronize();
  }
  EXPECT_EQ(RacesReported(), 0u);
}

TEST_F(Races, WorkThatIsHeldBackStillRacesWithWhatWasLongWaitedFor) {
  Gate gate(second_);
  Write(second_, 0, 1);
  for (uint64_t index = 0; index < 10000; ++index) Write(first_, index * 128, 128);
  ASSERT_EQ(cuda().cuStreamSynchronize(first_), CUDA_SUCCESS);
  for (uint64_t index = 1; index < 10000; ++index) Write(first_, index * 128, 128);
  gate.Open();
  EXPECT_EQ(RacesReported(), 1u);
}

// The race checker and memory that is unmapped, moved or freed.

class UnmappingRaces : public MachineTest {
 protected:
  // Maps the memory at a new address; unmapped with the test.
  struct Place {
    AddressRange range;
    Mapping mapping;
    CUdeviceptr address() const { return range.address(); }
    void Unmap() { mapping = Mapping(); }
  };
  Place MapSomewhere() {
    Place place{AddressRange::Reserve(driver(), kUnit, kUnit).value(), Mapping()};
    place.mapping = Mapping::Map(driver(), place.address(), physical_).value();
    EXPECT_TRUE(place.mapping.SetAccess(Properties().location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE).ok());
    return place;
  }
  void Write(CUstream stream, const Place& place) {
    ASSERT_EQ(Launch(stream, {{place.address(), kUnit}}), CUDA_SUCCESS);
  }

  PhysicalMemory physical_ = PhysicalMemory::Create(driver(), kUnit, Properties()).value();
  const CUstream stream_ = MakeStream();
};

TEST_F(UnmappingRaces, UnmappingBeforeTheHostWaitedIsReportedThoughTheWorkHasRun) {
  Place place = MapSomewhere();
  Write(stream_, place);
  const Ended ended(cuda(), stream_);
  place.Unmap();
  ExpectOneReport({"unmapped before the host waited: ", "test kernel of stream ", "issued at "});
}

TEST_F(UnmappingRaces, UnmappingAfterTheHostWaitedIsNot) {
  Place place = MapSomewhere();
  Write(stream_, place);
  ASSERT_EQ(cuda().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  place.Unmap();
  EXPECT_EQ(TakeReports(), std::vector<std::string>());
}

TEST_F(UnmappingRaces, UnmappingOtherAddressesOfTheMemoryIsNot) {
  Place used = MapSomewhere();
  Place other = MapSomewhere();
  Write(stream_, used);
  const Ended ended(cuda(), stream_);
  other.Unmap();
  EXPECT_EQ(TakeReports(), std::vector<std::string>());
  ASSERT_EQ(cuda().cuStreamSynchronize(stream_), CUDA_SUCCESS);
}

TEST_F(UnmappingRaces, PagesKeepTheirHistoryAtOtherAddresses) {
  Place before = MapSomewhere();
  Write(stream_, before);
  const Ended ended(cuda(), stream_);
  before.Unmap();
  EXPECT_TRUE(AnyContains(TakeReports(), "unmapped before the host waited"));
  Place after = MapSomewhere();
  Write(MakeStream(), after);
  ASSERT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_TRUE(AnyContains(TakeReports(), "race: "));
}

TEST_F(UnmappingRaces, TwoAddressesOfOneMemoryAreOneMemory) {
  Place one = MapSomewhere();
  Place two = MapSomewhere();
  Write(stream_, one);
  ASSERT_EQ(Launch(MakeStream(), {{two.address() + 100, 1}}), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_TRUE(AnyContains(TakeReports(), "race: "));
}

TEST_F(UnmappingRaces, FreeingMemoryWaitsByItself) {
  const CUdeviceptr memory = NewMemory();
  Place place = MapSomewhere();
  ASSERT_EQ(Launch(stream_, {{memory, kUnit}, {place.address(), kUnit}}), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuMemFree(memory), CUDA_SUCCESS);
  place.Unmap();
  EXPECT_EQ(TakeReports(), std::vector<std::string>()) << "it waited for all that the device had";
}

TEST_F(UnmappingRaces, FreedMemoryHasNoHistory) {
  for (int round = 0; round < 3; ++round) {
    physical_ = PhysicalMemory();
    physical_ = PhysicalMemory::Create(driver(), kUnit, Properties()).value();
    Place place = MapSomewhere();
    const CUstream stream = MakeStream();
    Write(stream, place);
    const Ended ended(cuda(), stream);
  }
  EXPECT_FALSE(AnyContains(TakeReports(), "race: ")) << "new memory in the old one's place";
}

}  // namespace
}  // namespace commpool::internal::testing
