// A capture is announced to one pool. Calls on that pool, on others and on other devices work, or are refused before
// they ask the driver for anything that would break the capture. On hardware this uses the real driver.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "commpool/pool.h"
#include "src/library/driver/handles.h"
#include "tests/c_api/c_abi.h"
#include "tests/driver/emulator_fixture.h"

namespace commpool::internal::testing {
namespace {

const CudaDriver& Cuda() { return SharedDriver()->cuda; }

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
      ExpectOk(commpool_release_stream(stream));
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
  Subject(const PoolOptions& options, const Place& at, CUstream captures)
      : place(at), captured(captures), pool(Pool::create(options).value()) {
    ExpectOk(pool.reserve(MiB(8)));
    block = pool.allocate(MiB(2), place.stream()).value();
    ExpectOk(block.record_stream(place.second()));
    if (at.device() == 0) ExpectOk(pool.allocate(MiB(4), captured).value().free());
  }
  Status AllocateAndFree(uint64_t bytes, CUstream stream) { return pool.allocate(bytes, stream).status(); }

  const Place& place;
  const CUstream captured;
  Pool pool;
  Buffer block;
};

struct NamedCall {
  const char* name;
  std::function<Status(Subject&)> call;
};

const std::vector<NamedCall>& AllCalls() {
  static const std::vector<NamedCall> calls = {
      {"allocate a cached size", [](Subject& s) { return s.AllocateAndFree(4096, s.place.stream()); }},
      {"allocate what is free", [](Subject& s) { return s.AllocateAndFree(MiB(2), s.place.second()); }},
      {"allocate more than is free", [](Subject& s) { return s.AllocateAndFree(MiB(64), s.place.stream()); }},
      {"allocate what the captured stream used",
       [](Subject& s) { return s.AllocateAndFree(MiB(4), s.place.second()); }},
      {"allocate on the captured stream", [](Subject& s) { return s.AllocateAndFree(MiB(1), s.captured); }},
      {"allocate more than is free on the captured stream",
       [](Subject& s) { return s.AllocateAndFree(MiB(64), s.captured); }},
      {"allocate from the default pool",
       [](Subject& s) { return allocate(4096, s.place.stream(), s.place.device()).status(); }},
      {"free", [](Subject& s) { return s.block.free(); }},
      {"free what the captured stream used",
       [](Subject& s) {
         const Status recorded = s.block.record_stream(s.captured);
         const Status freed = s.block.free();
         const Status asked = s.pool.reclaim().status();
         return !recorded.ok() ? recorded : !freed.ok() ? freed : asked;
       }},
      {"reserve", [](Subject& s) { return s.pool.reserve(MiB(128)); }},
      {"reclaim", [](Subject& s) { return s.pool.reclaim().status(); }},
      {"trim", [](Subject& s) { return s.pool.trim(0).status(); }},
      {"close", [](Subject& s) { return s.pool.close(); }},
      {"destroy",
       [](Subject& s) {
         const Status freed = s.block.free();
         s.pool = Pool::create({}).value();
         return freed;
       }},
      {"revoke",
       [](Subject& s) {
         if (DeviceCountOfTests() < 2) return Status();
         const Status granted = s.pool.grant({1 - s.place.device()});
         const Status revoked = s.pool.revoke({1 - s.place.device()});
         return granted.ok() ? revoked : granted;
       }},
      {"release a stream", [](Subject& s) { return release_stream(s.place.second()); }},
      {"release the captured stream", [](Subject& s) { return release_stream(s.captured); }},
      {"statistics", [](Subject& s) { return s.pool.stats().status(); }},
  };
  return calls;
}

enum class Kind { kFixed, kExpandable, kCuda, kThreshold };

PoolOptions OptionsOf(Kind kind, int device) {
  PoolOptions options{.name = "subject", .device = device};
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

class CaptureIsolation : public DriverTest,
                         public ::testing::WithParamInterface<std::tuple<CUstreamCaptureMode, Kind>> {
 protected:
  // The pool of the call: the pool with the capture, another one on its device, or one on another device.
  enum class On { kTold, kSameDevice, kOtherDevice };
  enum class From { kCapturingThread, kOtherThread };

  static void SetUpTestSuite() { ExpectOk(commpool_initialize(COMMPOOL_DRIVER_AUTO, COMMPOOL_MEASURE_NOTHING)); }
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
    ExpectOk(commpool_capture_begin(told.pool.handle(), captured, &capture));
    Subject& subject = on == On::kTold ? told : beside;
    Status status;
    const auto call = [&] {
      const ContextGuard there = subject.place.MakeCurrent();
      status = named.call(subject);
    };
    from == From::kCapturingThread ? call() : std::thread(call).join();
    EXPECT_TRUE(IsSound(status)) << status.message();
    CUgraph graph = nullptr;
    EXPECT_EQ(Cuda().cuStreamEndCapture(captured, &graph), CUDA_SUCCESS)
        << "the capture was broken; the call said: " << (status.ok() ? "OK" : status.message());
    ExpectOk(commpool_capture_end(capture));
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
}  // namespace commpool::internal::testing
