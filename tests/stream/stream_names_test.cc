// A handle is not a stream: one stream has one key, and the per-thread default stream one a thread. For a promised
// stream the handle is its name until its release, for others the driver's number.
#include "src/library/stream/stream_names.h"

#include <gtest/gtest.h>

#include <thread>

#include "src/library/stream/stream_key.h"
#include "tests/stream/stream_fixture.h"

namespace commpool::internal::testing {
namespace {

CUstream Handle(uintptr_t value) { return reinterpret_cast<CUstream>(value); }

StreamKey PerThreadKeyElsewhere() {
  StreamKey key = 0;
  std::thread([&] { key = KeyOfStream(CU_STREAM_PER_THREAD, 0); }).join();
  return key;
}

TEST(StreamKeys, OfNullAndTheLegacyStreamAreOne) {
  EXPECT_EQ(KeyOfStream(nullptr, 0), KeyOfStream(CU_STREAM_LEGACY, 0));
  EXPECT_EQ(StreamOfKey(KeyOfStream(nullptr, 0)), CU_STREAM_LEGACY);
}

TEST(StreamKeys, OfDefaultStreamsDifferByDevice) {
  for (const CUstream stream : {CUstream{nullptr}, CU_STREAM_PER_THREAD}) {
    const StreamKey far = KeyOfStream(stream, 3);
    EXPECT_NE(far, KeyOfStream(stream, 0));
    EXPECT_EQ(PlaceOf(far), 3);
    EXPECT_EQ(WithoutPlace(far), KeyOfStream(stream, 0));
    EXPECT_TRUE(IsReachable(far));
  }
}

TEST(StreamKeys, OfThePerThreadStreamMayHaveDiedForOtherThreads) {
  EXPECT_FALSE(MayHaveDied(KeyOfStream(CU_STREAM_PER_THREAD, 0)));
  EXPECT_TRUE(MayHaveDied(PerThreadKeyElsewhere()));
}

TEST(StreamKeys, OfThePerThreadStreamDifferByThread) {
  const StreamKey own = KeyOfStream(CU_STREAM_PER_THREAD, 0);
  EXPECT_EQ(KeyOfStream(CU_STREAM_PER_THREAD, 0), own);
  EXPECT_NE(own, KeyOfStream(CU_STREAM_LEGACY, 0));
  EXPECT_NE(PerThreadKeyElsewhere(), own);
  EXPECT_EQ(StreamOfKey(own), CU_STREAM_PER_THREAD);
}

TEST(StreamKeys, OfAThreadThatEndedAreNotReused) { EXPECT_NE(PerThreadKeyElsewhere(), PerThreadKeyElsewhere()); }

TEST(StreamKeys, OfOtherStreamsLeadBackToTheirHandles) {
  for (const uintptr_t value : {uintptr_t{0x7f0000001000}, uintptr_t{0x55aa00000008}}) {
    const StreamKey key = KeyOfStream(Handle(value), 0);
    EXPECT_EQ(StreamOfKey(key), Handle(value));
    EXPECT_TRUE(IsReachable(key));
  }
}

TEST(StreamKeys, AreReachableButForOtherThreadsDefaultStreams) {
  EXPECT_TRUE(IsReachable(KeyOfStream(nullptr, 0)));
  EXPECT_TRUE(IsReachable(KeyOfStream(CU_STREAM_PER_THREAD, 0)));
  EXPECT_FALSE(IsReachable(PerThreadKeyElsewhere()));
}

TEST(StreamKeys, OfStreamsThatMayBeGoneAreReachedInTheCallThatPassesThem) {
  const StreamKey key = NameOfId(7);
  const StreamKey inner = NameOfId(8);
  EXPECT_FALSE(IsReachable(key));
  {
    const PassedStream passes(key, Handle(0x1000));
    EXPECT_TRUE(IsReachable(key));
    EXPECT_EQ(StreamOfKey(key), Handle(0x1000));
    std::thread([&] { EXPECT_FALSE(IsReachable(key)) << "another thread's call does not pass it"; }).join();
    {
      const PassedStream passes_inside(inner, Handle(0x2000));
      EXPECT_FALSE(IsReachable(key));
      EXPECT_EQ(StreamOfKey(inner), Handle(0x2000));
    }
    EXPECT_TRUE(IsReachable(key));
  }
  EXPECT_FALSE(IsReachable(key));
}

TEST(StreamKeysDeathTest, OfStreamsThatMayBeGoneHaveNoHandleElsewhere) {
  EXPECT_DEATH(StreamOfKey(NameOfId(7)), "no handle outside of the call that passes it");
}

TEST(StreamKeysDeathTest, OfOtherThreadsDefaultStreamsHaveNoHandle) {
  const StreamKey key = PerThreadKeyElsewhere();
  EXPECT_DEATH(StreamOfKey(key), "no handle outside of the call that passes it");
}

class Names : public DriverTest {
 protected:
  StreamKey KeyOf(CUstream stream) { return names_.NameOf(stream).value().key; }

  const CurrentContext context_;
  StreamPlaces places_{driver()};
  StreamNames names_{driver(), places_};
};

TEST_F(Names, OfDefaultStreamsArePromised) {
  for (const CUstream stream : {CUstream{nullptr}, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
    EXPECT_TRUE(names_.IsPromised(stream));
    EXPECT_TRUE(names_.Promise(stream).ok());
    EXPECT_TRUE(names_.Means(stream, KeyOfStream(stream, 0)));
  }
}

TEST_F(Names, HaveThePlaceOfTheStreamAndAskForItOnce) {
  COMMPOOL_REQUIRE_DEVICES(2);
  const PrimaryContext far = PrimaryContext::Retain(driver(), 1).value();
  const TestStream stream(far);
  EXPECT_EQ(PlaceOf(KeyOf(stream)), 1);
  const uint64_t calls = CallCount("cuStreamGetCtx");
  EXPECT_EQ(PlaceOf(KeyOf(stream)), 1);
  ASSERT_TRUE(names_.Promise(stream).ok());
  EXPECT_EQ(PlaceOf(KeyOf(stream)), 1);
  ExpectCalls("cuStreamGetCtx", calls, 0);
  names_.Release(stream);
}

TEST_F(Names, OfOtherStreamsAreTheirNumbers) {
  TestStream first;
  const StreamKey key = KeyOf(first);
  EXPECT_TRUE(IsUnpromised(key));
  EXPECT_EQ(KeyOf(first), key);
  EXPECT_TRUE(names_.Means(first, key));
  first.Destroy();
  const TestStream second;  // at the same handle
  EXPECT_NE(KeyOf(second), key);
  EXPECT_FALSE(names_.Means(second, key));
}

TEST_F(Names, OfPromisedStreamsAreTheirHandlesUntilTheRelease) {
  const TestStream stream;
  const StreamKey number = KeyOf(stream);
  ASSERT_TRUE(names_.Promise(stream).ok());
  ASSERT_TRUE(names_.Promise(stream).ok()) << "twice is once";
  const uint64_t calls = CallCount("cuStreamGetId");
  EXPECT_EQ(KeyOf(stream), KeyOfStream(stream, 0));
  EXPECT_EQ(names_.NameOf(stream).value().identity, number) << "a scope that began before catches it still";
  ExpectCalls("cuStreamGetId", calls, 0);
  names_.Release(stream);
  EXPECT_FALSE(names_.IsPromised(stream));
  EXPECT_EQ(KeyOf(stream), number);
  names_.Release(stream);
}

TEST_F(Names, HaveRoomForPromisesThatComeAndGo) {
  for (int round = 0; round < 10000; ++round) {
    const TestStream stream;
    ASSERT_TRUE(names_.Promise(stream).ok());
    ASSERT_FALSE(IsUnpromised(KeyOf(stream))) << round;
    names_.Release(stream);
  }
}

// Their handles are all different, as those of streams that come and go mostly are not.
TEST_F(Names, HaveRoomForPromisesOfStreamsThatStay) {
  std::vector<TestStream> streams;
  for (int round = 0; round < 5000; ++round) {
    streams.emplace_back();
    ASSERT_TRUE(names_.Promise(streams.back()).ok());
    ASSERT_FALSE(IsUnpromised(KeyOf(streams.back()))) << round;
    names_.Release(streams.back());
  }
}

// As many as share places of the table.
TEST_F(Names, OfManyPromisedStreamsAreTheirHandlesAtOnce) {
  std::vector<TestStream> streams;
  for (int count = 0; count < 1000; ++count) {
    streams.emplace_back();
    ASSERT_TRUE(names_.Promise(streams.back()).ok());
  }
  for (const CUstream stream : streams) EXPECT_EQ(StreamOfKey(KeyOf(stream)), stream);
  const TestStream unpromised;
  EXPECT_TRUE(IsUnpromised(KeyOf(unpromised)));
  names_.Release(unpromised);
  for (const CUstream stream : streams) names_.Release(stream);
}

TEST_F(Names, OfMissingStreamsAreErrors) {
  COMMPOOL_REQUIRE_EMULATOR("a driver crashes");
  ExpectMessage(names_.NameOf(Handle(0xdead0)).status(), "the stream was destroyed or never made");
}

// A handle is no name in its place: it would lead to the memory of a dead stream that had it.
TEST_F(Names, AreErrorsWhereTheDriverGivesNoNumbers) {
  Driver refusing = driver();
  refusing.cuda.cuStreamGetId = [](CUstream, unsigned long long*) { return CUDA_ERROR_NOT_SUPPORTED; };
  StreamPlaces places(refusing);
  const StreamNames names(refusing, places);
  const TestStream stream;
  ExpectFailure(names.NameOf(stream).status(), StatusCode::kNotSupported, "cuStreamGetId");
}

TEST_F(Names, OfACapturedStreamAreItsHandleForTheTime) {
  const TestStream stream;
  const StreamName before = names_.NameOf(stream).value();
  ASSERT_EQ(driver().cuda.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  const StreamName captured = names_.NameOf(stream).value();
  EXPECT_TRUE(IsUnpromised(captured.key));
  EXPECT_NE(captured.key, before.key);
  EXPECT_EQ(captured.identity, before.identity) << "scopes that caught it catch it still";
  EXPECT_TRUE(names_.Means(stream, captured.key));
  EXPECT_FALSE(names_.Means(stream, before.key));
  ASSERT_TRUE(names_.Promise(stream).ok());
  names_.Release(stream);
  CUgraph graph = nullptr;
  ASSERT_EQ(driver().cuda.cuStreamEndCapture(stream, &graph), CUDA_SUCCESS) << "no question broke it";
  EXPECT_EQ(names_.NameOf(stream).value().key, before.key);
  EXPECT_EQ(driver().cuda.cuGraphDestroy(graph), CUDA_SUCCESS);
}

// A promise that a capture made took the place of a dead stream, and every later use of the stream went there.
TEST_F(Names, OfACapturedStreamHaveNothingOfADeadStreamOfAnotherDevice) {
  COMMPOOL_REQUIRE_DEVICES(2);
  TestStream ended;
  const CUstream dead = ended;
  KeyOf(dead);
  ended.Destroy();
  const CurrentContext far(1);
  const TestStream stream;
  if (stream != dead) GTEST_SKIP() << "this driver gave the dead stream's handle to nobody";
  ASSERT_EQ(driver().cuda.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
  ASSERT_TRUE(names_.Promise(stream).ok());
  EXPECT_EQ(PlaceOf(KeyOf(stream)), 1);
  EXPECT_EQ(PlaceOf(names_.NameOf(stream).value().identity), 1);
  names_.Release(stream);
  CUgraph graph = nullptr;
  ASSERT_EQ(driver().cuda.cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  EXPECT_EQ(driver().cuda.cuGraphDestroy(graph), CUDA_SUCCESS);
}

TEST_F(Names, AreShownAsTheHandlesThatTheyHad) {
  const TestStream stream;
  EXPECT_EQ(names_.ShownHandle(KeyOf(stream)), reinterpret_cast<uint64_t>(CUstream{stream}));
  EXPECT_EQ(names_.ShownHandle(KeyOfStream(stream, 0)), reinterpret_cast<uint64_t>(CUstream{stream}));
  EXPECT_EQ(names_.ShownHandle(KeyOfStream(nullptr, 0)), StreamKey{1});
}

}  // namespace
}  // namespace commpool::internal::testing
