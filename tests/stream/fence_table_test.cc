// Fences: work submitted before a fence is done once the fence has passed, and events are recycled.
#include "src/library/stream/fence_table.h"

#include <cstring>
#include <functional>
#include <future>
#include <optional>
#include <utility>

#include "tests/stream/stream_fixture.h"
#include "tools/common/launch.h"

namespace commpool::internal::testing {
namespace {

constexpr uint64_t kBytes = 4 << 20;

class Fences : public DriverTest {
 protected:
  Fences() { EXPECT_EQ(cuda().cuMemAlloc(&memory_, kBytes), CUDA_SUCCESS); }
  ~Fences() override {
    EXPECT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
    FreeFinishedLaunches();
    table_.reset();
    EXPECT_EQ(cuda().cuMemFree(memory_), CUDA_SUCCESS);
  }

  const CudaDriver& cuda() const { return driver().cuda; }
  void Work(CUstream stream, uint8_t value) {
    Status status = Launch(driver(), stream, {}, {{memory_, kBytes}},
                           [value](const std::vector<const void*>&, const std::vector<void*>& writes) {
                             std::memset(writes[0], value, kBytes);
                           });
    EXPECT_TRUE(status.ok()) << status.message();
  }
  void Await(CUstream stream) { ASSERT_EQ(cuda().cuStreamSynchronize(stream), CUDA_SUCCESS); }
  FenceId Record(CUstream stream) { return table_->Record(KeyOfStream(stream, 0)).value(); }
  Status OrderSecondBehindFirst() { return table_->MakeWaitForStream(KeyOfStream(second_, 0), KeyOfStream(first_, 0)); }
  uint8_t LastByte() {
    EXPECT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
    uint8_t byte = 0;
    EXPECT_EQ(cuda().cuMemcpyDtoH(&byte, memory_ + kBytes - 1, 1), CUDA_SUCCESS);
    return byte;
  }

  const CurrentContext context_;
  StreamPlaces places_{driver()};
  Place& place_ = *places_.Get(0).value();
  std::optional<FenceTable> table_{std::in_place, driver(), places_};
  const TestStream first_;
  const TestStream second_;
  CUdeviceptr memory_ = 0;
};

TEST_F(Fences, PassWhenTheirStreamIsDone) {
  Work(first_, 1);
  const FenceId fence = Record(first_);
  Await(first_);
  EXPECT_TRUE(table_->Passed(fence).value());
  table_->Retire(fence);
}

TEST_F(Fences, AreNotNeededForAStreamThatStandsStill) {
  Work(first_, 1);
  Await(first_);
  EXPECT_TRUE(table_->IsIdle(KeyOfStream(first_, 0)).value());
}

TEST_F(Fences, OrderAnotherStreamsLaterWork) {
  for (int round = 0; round < 10; ++round) Work(first_, 1);
  const FenceId fence = Record(first_);
  ASSERT_TRUE(table_->MakeWait(KeyOfStream(second_, 0), fence).ok());
  table_->Retire(fence);
  Work(second_, 2);
  EXPECT_EQ(LastByte(), 2);
}

TEST_F(Fences, OrderAStreamBehindAnotherInOneCall) {
  for (int round = 0; round < 10; ++round) Work(first_, 1);
  ASSERT_TRUE(OrderSecondBehindFirst().ok());
  Work(second_, 2);
  EXPECT_EQ(LastByte(), 2);
}

TEST_F(Fences, AStreamDoesNotWaitForItself) {
  const uint64_t calls = CallCount("*");
  EXPECT_TRUE(table_->MakeWaitForStream(KeyOfStream(first_, 0), KeyOfStream(first_, 0)).ok());
  ExpectCalls("*", calls, 0);
}

TEST_F(Fences, ThatWereRetiredHavePassedAndAreRetiredAgainInPeace) {
  const FenceId fence = Record(first_);
  table_->Retire(fence);
  table_->Retire(fence);
  EXPECT_TRUE(table_->Passed(fence).value());
  EXPECT_TRUE(table_->MakeWait(KeyOfStream(second_, 0), fence).ok());
  for (const TestStream* stream : {&first_, &second_}) EXPECT_TRUE(table_->Record(KeyOfStream(*stream, 0)).ok());
}

// A stream's fences pass in order, so nobody asks one behind a fence that has not passed.
TEST_F(Fences, AreAskedUpToEachStreamsFirstThatHasNotPassed) {
  std::promise<void> gate;
  const std::shared_future<void> opened = gate.get_future().share();
  std::vector<FenceId> fences;
  const auto record = [&](CUstream stream) { fences.push_back(Record(stream)); };
  record(first_);
  record(first_);
  Await(first_);
  const Status held = Launch(driver(), first_, {}, {},
                             [opened](const std::vector<const void*>&, const std::vector<void*>&) { opened.wait(); });
  ASSERT_TRUE(held.ok()) << held.message();
  for (int time = 0; time < 5; ++time) record(first_);
  record(second_);
  Await(second_);
  table_->Retire(fences.front());

  const uint64_t before = CallCount("cuEventQuery");
  const std::vector<FenceId> passed = table_->PassedOf(fences);
  ExpectCalls("cuEventQuery", before, 3);  // the first stream's second and third, the second's one
  EXPECT_EQ(passed, (std::vector<FenceId>{fences[0], fences[1], fences.back()}));
  gate.set_value();
  Await(first_);
  EXPECT_EQ(table_->PassedOf(fences), fences);
  for (const FenceId fence : fences) table_->Retire(fence);
}

TEST_F(Fences, AreNumberedAnewWhileTheirEventsAreRecycled) {
  const FenceId first = Record(first_);
  table_->Retire(first);
  const uint64_t created = CallCount("cuEventCreate");
  const FenceId second = Record(first_);
  EXPECT_NE(second, first);
  ExpectCalls("cuEventCreate", created, 0);
  table_->Retire(second);
}

TEST_F(Fences, ThatFailNameTheCallAndLoseNoEvent) {
  COMMPOOL_REQUIRE_EMULATOR("it makes driver calls fail");
  for (const char* call : {"cuEventCreate", "cuEventRecord"}) {
    InjectedFault fault({.call = call, .result = CUDA_ERROR_UNKNOWN});
    ExpectFailure(table_->Record(KeyOfStream(first_, 0)).status(), StatusCode::kDriverError, call);
  }
  EXPECT_FALSE(place_.health.broken());
  table_->Retire(Record(first_));
}

TEST_F(Fences, ThatWereNeededForOneWaitLeaveTheirEventToOthers) {
  ASSERT_TRUE(OrderSecondBehindFirst().ok());
  const uint64_t created = CallCount("cuEventCreate");
  ASSERT_TRUE(table_->MakeWaitForStream(KeyOfStream(first_, 0), KeyOfStream(second_, 0)).ok());
  {
    COMMPOOL_REQUIRE_EMULATOR("it makes a driver call fail");
    const InjectedFault fault({.call = "cuEventRecord", .result = CUDA_ERROR_UNKNOWN});
    EXPECT_FALSE(table_->Record(KeyOfStream(first_, 0)).ok());
  }
  ASSERT_TRUE(table_->Record(KeyOfStream(first_, 0)).ok()) << "neither did a failure lose it";
  ExpectCalls("cuEventCreate", created, 0);
}

TEST_F(Fences, HaveNotPassedWhileTheirStreamIsNotDone) {
  COMMPOOL_REQUIRE_EMULATOR("it makes driver calls answer");
  const FenceId fence = Record(first_);
  for (const auto& [result, passed] : {std::pair(CUDA_ERROR_NOT_READY, true), std::pair(CUDA_ERROR_UNKNOWN, false)}) {
    const InjectedFault event({.call = "cuEventQuery", .result = result});
    const InjectedFault stream({.call = "cuStreamQuery", .result = result});
    for (const Result<bool>& answer : {table_->Passed(fence), table_->IsIdle(KeyOfStream(first_, 0))}) {
      EXPECT_EQ(answer.ok(), passed);
      EXPECT_FALSE(answer.value_or(false));
    }
  }
}

TEST_F(Fences, GiveTheirEventsBackWithTheTable) {
  COMMPOOL_REQUIRE_EMULATOR("it counts driver calls");
  table_->Retire(Record(first_));
  for (int count = 0; count < 2; ++count) ASSERT_TRUE(table_->Record(KeyOfStream(first_, 0)).ok());
  table_->Retire(Record(first_));
  const uint64_t destroyed = CallCount("cuEventDestroy");
  table_.reset();
  ExpectCalls("cuEventDestroy", destroyed, 3);
}

TEST_F(Fences, ThatCannotBeRecordedOrderNothing) {
  COMMPOOL_REQUIRE_EMULATOR("it makes a driver call fail");
  const InjectedFault fault({.call = "cuEventRecord", .result = CUDA_ERROR_UNKNOWN});
  ExpectFailure(OrderSecondBehindFirst(), StatusCode::kDriverError, "cuEventRecord");
}

TEST_F(Fences, GiveTheLegacyStreamNothingBesideABlockingStreamThatCaptures) {
  const StreamKey legacy = KeyOfStream(nullptr, 0);
  const FenceId before = Record(second_);
  const TestStream blocking(CU_STREAM_DEFAULT);
  ASSERT_EQ(cuda().cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  EXPECT_EQ(table_->Record(legacy).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(table_->MakeWait(legacy, before).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(table_->MakeWaitForStream(legacy, KeyOfStream(second_, 0)).code(), StatusCode::kFailedPrecondition);
  CUgraph graph = nullptr;
  EXPECT_EQ(cuda().cuStreamEndCapture(blocking, &graph), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuGraphDestroy(graph), CUDA_SUCCESS);
  EXPECT_TRUE(table_->MakeWait(legacy, before).ok());
}

TEST_F(Fences, TellAStickyErrorToTheDevicesHealth) {
  COMMPOOL_REQUIRE_EMULATOR("it makes driver calls fail");
  const FenceId fence = Record(first_);
  InjectedFault fault({.call = "cuEventQuery", .result = CUDA_ERROR_ILLEGAL_ADDRESS});
  EXPECT_FALSE(table_->Passed(fence).ok());
  EXPECT_TRUE(place_.health.broken());
  // Nobody calls the driver for a context that is lost, not even to release it.
  AllowLeak("event of device 0");
  AllowLeak("primary context of device 0");
}

// In this driver each question about an event comes just after another thread has retired the fence: the question
// itself retires it.
class RetiringDriver {
 public:
  explicit RetiringDriver(const Driver& real) : driver(real) {
    query = real.cuda.cuEventQuery;
    wait = real.cuda.cuStreamWaitEvent;
    driver.cuda.cuEventQuery = [](CUevent event) {
      table->Retire(fence);
      return query(event);
    };
    driver.cuda.cuStreamWaitEvent = [](CUstream stream, CUevent event, unsigned flags) {
      table->Retire(fence);
      return wait(stream, event, flags);
    };
  }

  Driver driver;
  static inline FenceTable* table = nullptr;
  static inline FenceId fence = 0;

 private:
  static inline decltype(CudaDriver::cuEventQuery) query = nullptr;
  static inline decltype(CudaDriver::cuStreamWaitEvent) wait = nullptr;
};

class FencesOfAnotherDevice : public Fences {
 protected:
  void SetUp() override {
    COMMPOOL_REQUIRE_EMULATOR("it makes driver calls fail, and counts them");
    COMMPOOL_REQUIRE_DEVICES(2);
    ASSERT_TRUE(places_.Get(place()).ok());
  }

  int place() const { return other_.device(); }

  PrimaryContext other_ = PrimaryContext::Retain(driver(), DeviceCountOfTests() - 1).value();
  const TestStream elsewhere_{other_};
};

TEST_F(FencesOfAnotherDevice, AreRecordedThereAndNameIt) {
  const FenceId fence = table_->Record(KeyOfStream(elsewhere_, place())).value();
  EXPECT_EQ(PlaceOf(fence), place());
  ASSERT_TRUE(table_->MakeWait(KeyOfStream(first_, 0), fence).ok());
  table_->Retire(fence);
  const uint64_t created = CallCount("cuEventCreate");
  table_->Retire(table_->Record(KeyOfStream(elsewhere_, place())).value());
  ExpectCalls("cuEventCreate", created, 0);
  table_->Retire(Record(first_));
  ExpectCalls("cuEventCreate", created, 1);
}

TEST_F(FencesOfAnotherDevice, OfDefaultStreamsOrderThatDevicesWork) {
  const ContextGuard here(driver(), context_);
  const FenceId far = table_->Record(KeyOfStream(nullptr, place())).value();
  EXPECT_EQ(PlaceOf(far), place());
  EXPECT_TRUE(table_->MakeWaitForStream(KeyOfStream(nullptr, 0), KeyOfStream(nullptr, place())).ok());
  CUcontext current = nullptr;
  EXPECT_EQ(cuda().cuCtxGetCurrent(&current), CUDA_SUCCESS);
  EXPECT_EQ(current, context_.get()) << "each call puts the context back";
  table_->Retire(far);
}

TEST_F(FencesOfAnotherDevice, TellWhichCallFailed) {
  for (const auto& [call, part] : {std::pair("cuEventCreate", std::string("cuEventCreate")),
                                   std::pair("cuEventRecord", "device " + std::to_string(place()))}) {
    const InjectedFault fault({.call = call, .result = CUDA_ERROR_UNKNOWN});
    ExpectMessage(table_->Record(KeyOfStream(elsewhere_, place())).status(), part);
  }
}

// A question about another device's stream or event answers with what that device has met.
TEST_F(FencesOfAnotherDevice, SayNothingOfThisOnesHealthWhereThatDeviceFails) {
  // Nobody calls the driver for a context that is lost, not even to release it.
  AllowLeak("of device " + std::to_string(place()));
  const FenceId far = table_->Record(KeyOfStream(elsewhere_, place())).value();
  const FenceId near = Record(first_);
  Await(first_);
  {
    const InjectedFault fault({.call = "cuEventQuery", .result = CUDA_ERROR_ILLEGAL_ADDRESS, .count = 1});
    EXPECT_EQ(table_->PassedOf({far, near}), std::vector<FenceId>{near}) << "those of this device go on";
  }
  const auto expect_failure = [&](const char* call, const std::function<bool()>& ask) {
    const InjectedFault fault({.call = call, .result = CUDA_ERROR_ILLEGAL_ADDRESS});
    EXPECT_FALSE(ask()) << call;
  };
  expect_failure("cuStreamQuery", [&] { return table_->IsIdle(KeyOfStream(elsewhere_, place())).ok(); });
  expect_failure("cuEventQuery", [&] { return table_->Passed(far).ok(); });
  expect_failure("cuStreamWaitEvent", [&] { return table_->MakeWait(KeyOfStream(first_, 0), far).ok(); });
  expect_failure("cuEventRecord", [&] { return table_->Record(KeyOfStream(elsewhere_, place())).ok(); });
  EXPECT_FALSE(place_.health.broken());
  for (const FenceId fence : {far, near}) table_->Retire(fence);
}

TEST_F(Fences, OfAnotherDeviceMayBeRetiredWhileTheDriverIsAsked) {
  COMMPOOL_REQUIRE_DEVICES(2);
  RetiringDriver retiring(driver());
  ASSERT_TRUE(places_.Get(1).ok());
  FenceTable table(retiring.driver, places_);
  RetiringDriver::table = &table;
  const PrimaryContext other = PrimaryContext::Retain(driver(), 1).value();
  const TestStream elsewhere(other);
  RetiringDriver::fence = table.Record(KeyOfStream(elsewhere, 1)).value();
  ExpectOk(table.Passed(RetiringDriver::fence).status());
  RetiringDriver::fence = table.Record(KeyOfStream(elsewhere, 1)).value();
  ExpectOk(table.MakeWait(KeyOfStream(first_, 0), RetiringDriver::fence));
}

}  // namespace
}  // namespace commpool::internal::testing
