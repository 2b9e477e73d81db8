// A capture is announced to one pool. Calls on that pool, on others and on other devices work, or are refused before
// they ask the driver for anything that would break the capture. On hardware this uses the real driver.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "commpool/pool.h"
#include "src/library/driver/handles.h"
#include "tests/driver/emulator_fixture.h"

namespace commpool {
namespace {

using internal::ContextGuard;
using internal::PrimaryContext;
using internal::testing::DeviceCountOfTests;
using internal::testing::SharedDriver;

const internal::CudaDriver& Cuda() { return SharedDriver()->cuda; }

// A device with streams; its context is current on this thread.
class Place {
 public:
  explicit Place(int device) : device_(device), context_(PrimaryContext::Retain(*SharedDriver(), device).value()) {
    const ContextGuard current = MakeCurrent();
    for (CUstream* stream : {&stream_, &second_}) {
      EXPECT_EQ(Cuda().cuStreamCreate(stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    }
  }
  ~Place() {
    for (CUstream stream : {stream_, second_}) {
      EXPECT_EQ(commpool_release_stream(stream), COMMPOOL_OK) << commpool_last_error();
      EXPECT_EQ(Cuda().cuStreamDestroy(stream), CUDA_SUCCESS);
    }
  }

  int device() const { return device_; }
  CUstream stream() const { return stream_; }
  CUstream second() const { return second_; }
  ContextGuard MakeCurrent() const { return ContextGuard(*SharedDriver(), context_); }

 private:
  const int device_;
  const PrimaryContext context_;
  CUstream stream_ = nullptr;
  CUstream second_ = nullptr;
};

// A pool with free memory, a live block that two streams used, and memory that the captured stream used last.
struct Subject {
  Subject(const PoolOptions& options, const Place& at, CUstream captured)
      : place(at), pool(Pool::create(options).value()) {
    EXPECT_TRUE(pool.reserve(MiB(8)).ok()) << commpool_last_error();
    block = pool.allocate(MiB(2), place.stream()).value();
    EXPECT_TRUE(block.record_stream(place.second()).ok());
    if (at.device() != 0) return;
    EXPECT_TRUE(pool.allocate(MiB(4), captured).value().free().ok());
  }

  const Place& place;
  Pool pool;
  Buffer block;
};

using Call = std::function<Status(Subject&, CUstream captured)>;

struct NamedCall {
  const char* name;
  Call call;
};

// Frees the block at once.
Status Done(const Result<Buffer>& block) { return block.status(); }

const std::vector<NamedCall>& AllCalls() {
  static const std::vector<NamedCall> calls = {
      {"allocate a cached size", [](Subject& s, CUstream) { return Done(s.pool.allocate(4096, s.place.stream())); }},
      {"allocate what is free", [](Subject& s, CUstream) { return Done(s.pool.allocate(MiB(2), s.place.second())); }},
      {"allocate more than is free",
       [](Subject& s, CUstream) { return Done(s.pool.allocate(MiB(64), s.place.stream())); }},
      {"allocate what the captured stream used",
       [](Subject& s, CUstream) { return Done(s.pool.allocate(MiB(4), s.place.second())); }},
      {"allocate on the captured stream",
       [](Subject& s, CUstream captured) { return Done(s.pool.allocate(MiB(1), captured)); }},
      {"allocate more than is free on the captured stream",
       [](Subject& s, CUstream captured) { return Done(s.pool.allocate(MiB(64), captured)); }},
      {"allocate from the default pool",
       [](Subject& s, CUstream) { return Done(allocate(4096, s.place.stream(), s.place.device())); }},
      {"free", [](Subject& s, CUstream) { return s.block.free(); }},
      {"free what the captured stream used",
       [](Subject& s, CUstream captured) {
         const Status recorded = s.block.record_stream(captured);
         const Status freed = s.block.free();
         const Status asked = s.pool.reclaim().status();
         return !recorded.ok() ? recorded : !freed.ok() ? freed : asked;
       }},
      {"reserve", [](Subject& s, CUstream) { return s.pool.reserve(MiB(128)); }},
      {"reclaim", [](Subject& s, CUstream) { return s.pool.reclaim().status(); }},
      {"trim", [](Subject& s, CUstream) { return s.pool.trim(0).status(); }},
      {"close", [](Subject& s, CUstream) { return s.pool.close(); }},
      {"destroy",
       [](Subject& s, CUstream) {
         const Status freed = s.block.free();
         s.pool = Pool::create({}).value();
         return freed;
       }},
      {"revoke",
       [](Subject& s, CUstream) {
         if (DeviceCountOfTests() < 2) return Status();
         const Status granted = s.pool.grant({1 - s.place.device()});
         const Status revoked = s.pool.revoke({1 - s.place.device()});
         return granted.ok() ? revoked : granted;
       }},
      {"release a stream",
       [](Subject& s, CUstream) {
         return commpool_release_stream(s.place.second()) == COMMPOOL_OK
                    ? Status()
                    : Status(StatusCode::kFailedPrecondition, commpool_last_error());
       }},
      {"release the captured stream",
       [](Subject&, CUstream captured) {
         return commpool_release_stream(captured) == COMMPOOL_OK
                    ? Status()
                    : Status(StatusCode::kFailedPrecondition, commpool_last_error());
       }},
      {"statistics", [](Subject& s, CUstream) { return s.pool.stats().status(); }},
  };
  return calls;
}

enum class Kind { kFixed, kExpandable, kCuda, kThreshold };

PoolOptions OptionsOf(Kind kind, int device) {
  PoolOptions options;
  options.name = "subject";
  options.device = device;
  if (kind == Kind::kExpandable) options.mode = Mode::kExpandable;
  if (kind == Kind::kCuda) options.backing = Backing::kCuda;
  if (kind == Kind::kThreshold) options.release_threshold_bytes = 0;
  return options;
}

// Whether a call worked, or names the capture that it would break, or says that the memory is not cudaMalloc's.
bool IsSound(const Status& status) {
  if (status.ok()) return true;
  const std::string& message = status.message();
  const bool told = message.find("captur") != message.npos || message.find("cuCtxEnablePeerAccess") != message.npos;
  return told && (status.code() == StatusCode::kFailedPrecondition || status.code() == StatusCode::kOutOfMemory ||
                  status.code() == StatusCode::kNotSupported);
}

class CaptureIsolation : public internal::testing::DriverTest,
                         public ::testing::WithParamInterface<std::tuple<CUstreamCaptureMode, Kind>> {
 protected:
  // The pool of the call: the pool with the capture, another one on its device, or one on another device.
  enum class On { kTold, kSameDevice, kOtherDevice };
  enum class From { kCapturingThread, kOtherThread };

  static void SetUpTestSuite() {
    ASSERT_EQ(commpool_initialize(COMMPOOL_DRIVER_AUTO, COMMPOOL_MEASURE_NOTHING), COMMPOOL_OK);
  }
  CaptureIsolation() {
    for (const char* kept : {"primary context", "event"}) AllowLeak(kept);  // the runtime lives as long as the process
  }
  // These calls release the memory of pools that were destroyed inside a capture.
  void TearDown() override {
    for (int device = 0; device < std::min(2, DeviceCountOfTests()); ++device) {
      EXPECT_TRUE(Pool::default_pool(device).value().trim(0).ok()) << commpool_last_error();
    }
  }

  void Check(const NamedCall& named, On on, From from) {
    SCOPED_TRACE(std::string(named.name) + ", on the pool " +
                 (on == On::kTold         ? "that was told"
                  : on == On::kSameDevice ? "beside it"
                                          : "of another device") +
                 (from == From::kOtherThread ? ", from another thread" : ""));
    const auto [mode, kind] = GetParam();
    const Place home(0);
    const Place elsewhere(on == On::kOtherDevice ? 1 : 0);
    const ContextGuard current = home.MakeCurrent();
    Subject told(OptionsOf(on == On::kTold ? kind : Kind::kFixed, 0), home, home.stream());
    Subject beside(OptionsOf(kind, elsewhere.device()), elsewhere, home.stream());
    EXPECT_EQ(Cuda().cuStreamSynchronize(home.stream()), CUDA_SUCCESS);
    const CUstream captured = home.stream();
    ASSERT_EQ(Cuda().cuStreamBeginCapture(captured, mode), CUDA_SUCCESS);
    commpool_capture capture = 0;
    EXPECT_EQ(commpool_capture_begin(told.pool.handle(), captured, &capture), COMMPOOL_OK) << commpool_last_error();
    Subject& subject = on == On::kTold ? told : beside;
    Status status;
    const auto call = [&] {
      const ContextGuard there = subject.place.MakeCurrent();
      status = named.call(subject, captured);
    };
    from == From::kCapturingThread ? call() : std::thread(call).join();
    EXPECT_TRUE(IsSound(status)) << status.message();
    CUgraph graph = nullptr;
    EXPECT_EQ(Cuda().cuStreamEndCapture(captured, &graph), CUDA_SUCCESS)
        << "the capture was broken; the call said: " << (status.ok() ? "OK" : status.message());
    EXPECT_EQ(commpool_capture_end(capture), COMMPOOL_OK) << commpool_last_error();
    if (graph != nullptr) {
      EXPECT_EQ(Cuda().cuGraphDestroy(graph), CUDA_SUCCESS);
    }
  }
};

TEST_P(CaptureIsolation, NoCallBreaksTheCapture) {
  for (const NamedCall& named : AllCalls()) {
    for (const On on : {On::kTold, On::kSameDevice, On::kOtherDevice}) {
      if (on == On::kOtherDevice && DeviceCountOfTests() < 2) continue;
      for (const From from : {From::kCapturingThread, From::kOtherThread}) Check(named, on, from);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    ModesAndKinds, CaptureIsolation,
    ::testing::Combine(::testing::Values(CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                         CU_STREAM_CAPTURE_MODE_RELAXED),
                       ::testing::Values(Kind::kFixed, Kind::kExpandable, Kind::kCuda, Kind::kThreshold)));

}  // namespace
}  // namespace commpool
