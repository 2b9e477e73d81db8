// A handle is not a stream: one stream has one key, and the per-thread default stream one a thread.
#include "src/library/stream/stream_key.h"

#include <gtest/gtest.h>

#include <thread>

namespace commpool::internal {
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

}  // namespace
}  // namespace commpool::internal
