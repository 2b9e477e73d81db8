#include "tools/traces/trace.h"

#include <gtest/gtest.h>

#include "tools/traces/xz.h"

namespace commpool::cli {
namespace {

TEST(TraceTest, NumbersBlocksByFirstAllocationAndFindsThePeak) {
  Result<Trace> trace = ParseTrace("t", "# comment\na 90 100 0\na 7 50 2\nf 90\na 90 60 1\nf 7\nf 90\n");
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  EXPECT_EQ(trace->blocks, 3u);
  EXPECT_EQ(trace->streams, 3u);
  EXPECT_EQ(trace->peak_requested_bytes, 150u);
  ASSERT_EQ(trace->events.size(), 6u);
  EXPECT_FALSE(trace->events[2].allocates());
  EXPECT_EQ(trace->events[2].block, 0u);
  EXPECT_EQ(trace->events[4].stream, 2u);  // of a free: the block's own
  EXPECT_EQ(trace->events[5].block, 2u);   // the number 90 was given anew
}

TEST(TraceTest, TheLastLineNeedsNoEnd) { EXPECT_EQ(ParseTrace("t", "a 1 2 0").value().events.size(), 1u); }

TEST(TraceTest, NamesTheLineThatIsWrong) {
  for (const char* text : {"a 1 2 0\na 1 2 0\n", "a 1 2 0\nf 2\n", "a 1 2 0\na 2 0 0\n", "a 1 2 0\na 2 5\n",
                           "a 1 2 0\na 2 5 0 9\n", "a 1 2 0\nf\n", "a 1 2 0\nf 1 1\n", "a 1 2 0\nx 1\n",
                           "a 1 2 0\na 2 5 9999\n", "a 1 2 0\na 2 18446744073709551615 0\n"}) {
    const Status status = ParseTrace("t", text).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text;
    EXPECT_NE(status.message().find("line 2 of t"), std::string::npos) << status.message();
  }
  EXPECT_FALSE(ParseTrace("t", "# nothing\n").ok());
}

TEST(TraceTest, SpreadsRunsOfBlocksAndSharesEveryEighthWithTheNextStream) {
  std::string text;
  for (int block = 0; block < 192; ++block) text += "a " + std::to_string(block) + " 512 0\n";
  text += "f 70\n";
  Trace trace = ParseTrace("t", text).value();
  SpreadOverStreams(trace, 2);
  EXPECT_EQ(trace.streams, 2u);
  EXPECT_EQ(trace.events[63].stream, 0u);
  EXPECT_EQ(trace.events[64].stream, 1u);
  EXPECT_EQ(trace.events[64].also_on, 0u);
  EXPECT_EQ(trace.events[65].also_on, TraceEvent::kNoStream);
  EXPECT_EQ(trace.events[128].stream, 0u);
  EXPECT_EQ(trace.events[192].stream, 1u);  // the free of block 70
}

TEST(TraceTest, ScalesSizesAndThePeak) {
  Trace trace = ParseTrace("t", "a 0 100 0\na 1 1 0\nf 0\na 2 50 0\n").value();
  Scale(trace, 1.31);
  EXPECT_EQ(trace.events[0].bytes, 131u);
  EXPECT_EQ(trace.events[1].bytes, 1u) << "no block vanishes";
  EXPECT_FALSE(trace.events[2].allocates());
  EXPECT_EQ(trace.events[3].bytes, 66u);
  EXPECT_EQ(trace.peak_requested_bytes, 132u);
}

TEST(TraceTest, ABlockOfOneByteIsNotShared) {
  Trace trace = ParseTrace("t", "a 0 1 0\n").value();
  SpreadOverStreams(trace, 2);
  EXPECT_EQ(trace.events[0].also_on, TraceEvent::kNoStream);
}

TEST(TraceTest, PlacesThatAreNotThereAreNamed) {
  const Status status = FindTraces({"nowhere.trace"}).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_NE(status.message().find("nowhere.trace"), std::string::npos);
}

TEST(TraceTest, WhatIsNoXzFileIsAnError) {
  EXPECT_FALSE(DecompressXz("f.xz", "").ok());
  EXPECT_FALSE(DecompressXz("f.xz", "a 1 2 0\n").ok());
}

}  // namespace
}  // namespace commpool::cli
