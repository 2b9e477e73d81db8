// Which stream a handle means: for a promised stream the handle until its release, for others the driver's number.
#include "src/library/stream/stream_names.h"

#include "src/library/driver/handles.h"
#include "tests/driver/emulator_fixture.h"

namespace commpool::internal::testing {
namespace {

class Names : public DriverTest {
 protected:
  CUstream NewStream() {
    CUstream stream = nullptr;
    EXPECT_EQ(driver().cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    return stream;
  }
  void Destroy(CUstream stream) { EXPECT_EQ(driver().cuda.cuStreamDestroy(stream), CUDA_SUCCESS); }
  StreamKey KeyOf(CUstream stream) { return names_.NameOf(stream).value().key; }

  const PrimaryContext context_ = PrimaryContext::Retain(driver(), 0).value();
  const ContextGuard current_{driver(), context_};
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
  CUstream stream = nullptr;
  {
    const ContextGuard guard(driver(), far);
    stream = NewStream();
  }
  EXPECT_EQ(PlaceOf(KeyOf(stream)), 1);
  const uint64_t calls = CallCount("cuStreamGetCtx");
  EXPECT_EQ(PlaceOf(KeyOf(stream)), 1);
  ASSERT_TRUE(names_.Promise(stream).ok());
  EXPECT_EQ(PlaceOf(KeyOf(stream)), 1);
  ExpectCalls("cuStreamGetCtx", calls, 0);
  names_.Release(stream);
  Destroy(stream);
}

TEST_F(Names, OfOtherStreamsAreTheirNumbers) {
  const CUstream first = NewStream();
  const StreamKey key = KeyOf(first);
  EXPECT_TRUE(IsUnpromised(key));
  EXPECT_EQ(KeyOf(first), key);
  EXPECT_TRUE(names_.Means(first, key));
  Destroy(first);
  const CUstream second = NewStream();  // at the same handle
  EXPECT_NE(KeyOf(second), key);
  EXPECT_FALSE(names_.Means(second, key));
  Destroy(second);
}

TEST_F(Names, OfPromisedStreamsAreTheirHandlesUntilTheRelease) {
  const CUstream stream = NewStream();
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
  Destroy(stream);
}

TEST_F(Names, HaveRoomForPromisesThatComeAndGo) {
  for (int round = 0; round < 10000; ++round) {
    const CUstream stream = NewStream();
    ASSERT_TRUE(names_.Promise(stream).ok());
    ASSERT_FALSE(IsUnpromised(KeyOf(stream))) << round;
    names_.Release(stream);
    Destroy(stream);
  }
}

// Their handles are all different, as those of streams that come and go mostly are not.
TEST_F(Names, HaveRoomForPromisesOfStreamsThatStay) {
  std::vector<CUstream> streams;
  for (int round = 0; round < 5000; ++round) {
    streams.push_back(NewStream());
    ASSERT_TRUE(names_.Promise(streams.back()).ok());
    ASSERT_FALSE(IsUnpromised(KeyOf(streams.back()))) << round;
    names_.Release(streams.back());
  }
  for (const CUstream stream : streams) Destroy(stream);
}

// As many as share places of the table.
TEST_F(Names, OfManyPromisedStreamsAreTheirHandlesAtOnce) {
  std::vector<CUstream> streams;
  for (int count = 0; count < 1000; ++count) {
    streams.push_back(NewStream());
    ASSERT_TRUE(names_.Promise(streams.back()).ok());
  }
  for (const CUstream stream : streams) EXPECT_EQ(StreamOfKey(KeyOf(stream)), stream);
  const CUstream unpromised = NewStream();
  EXPECT_TRUE(IsUnpromised(KeyOf(unpromised)));
  streams.push_back(unpromised);
  for (const CUstream stream : streams) {
    names_.Release(stream);
    Destroy(stream);
  }
}

TEST_F(Names, OfMissingStreamsAreErrors) {
  COMMPOOL_REQUIRE_EMULATOR("a driver crashes");
  const Result<StreamName> name = names_.NameOf(reinterpret_cast<CUstream>(uintptr_t{0xdead0}));
  ASSERT_FALSE(name.ok());
  EXPECT_NE(name.status().message().find("the stream was destroyed or never made"), std::string::npos);
}

// A handle is no name in its place: it would lead to the memory of a dead stream that had it.
TEST_F(Names, AreErrorsWhereTheDriverGivesNoNumbers) {
  Driver refusing = driver();
  refusing.cuda.cuStreamGetId = [](CUstream, unsigned long long*) { return CUDA_ERROR_NOT_SUPPORTED; };
  StreamPlaces places(refusing);
  const StreamNames names(refusing, places);
  const CUstream stream = NewStream();
  const Status refused = names.NameOf(stream).status();
  EXPECT_EQ(refused.code(), StatusCode::kNotSupported);
  EXPECT_NE(refused.message().find("cuStreamGetId"), std::string::npos) << refused.message();
  Destroy(stream);
}

TEST_F(Names, OfACapturedStreamAreItsHandleForTheTime) {
  const CUstream stream = NewStream();
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
  Destroy(stream);
}

// A promise that a capture made took the place of a dead stream, and every later use of the stream went there.
TEST_F(Names, OfACapturedStreamHaveNothingOfADeadStreamOfAnotherDevice) {
  COMMPOOL_REQUIRE_DEVICES(2);
  const CUstream dead = NewStream();
  KeyOf(dead);
  Destroy(dead);
  const PrimaryContext far = PrimaryContext::Retain(driver(), 1).value();
  const ContextGuard guard(driver(), far);
  const CUstream stream = NewStream();
  if (stream != dead) GTEST_SKIP() << "this driver gave the dead stream's handle to nobody";
  ASSERT_EQ(driver().cuda.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
  ASSERT_TRUE(names_.Promise(stream).ok());
  EXPECT_EQ(PlaceOf(KeyOf(stream)), 1);
  EXPECT_EQ(PlaceOf(names_.NameOf(stream).value().identity), 1);
  names_.Release(stream);
  CUgraph graph = nullptr;
  ASSERT_EQ(driver().cuda.cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  EXPECT_EQ(driver().cuda.cuGraphDestroy(graph), CUDA_SUCCESS);
  Destroy(stream);
}

TEST_F(Names, AreShownAsTheHandlesThatTheyHad) {
  const CUstream stream = NewStream();
  EXPECT_EQ(names_.ShownHandle(KeyOf(stream)), reinterpret_cast<uint64_t>(stream));
  EXPECT_EQ(names_.ShownHandle(KeyOfStream(stream, 0)), reinterpret_cast<uint64_t>(stream));
  EXPECT_EQ(names_.ShownHandle(KeyOfStream(nullptr, 0)), StreamKey{1});
  Destroy(stream);
}

}  // namespace
}  // namespace commpool::internal::testing
