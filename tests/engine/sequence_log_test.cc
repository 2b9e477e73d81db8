#include "src/library/engine/sequence_log.h"

#include <gtest/gtest.h>

namespace commpool::internal::engine {
namespace {

TEST(SequenceLog, AgreesForEqualCalls) {
  SequenceLog a;
  SequenceLog b;
  EXPECT_EQ(a.hash(), b.hash());
  for (uint64_t value = 0; value < 1000; ++value) {
    a.Append(SequenceCall::kAllocate, value);
    b.Append(SequenceCall::kAllocate, value);
    ASSERT_EQ(a.hash(), b.hash());
  }
  EXPECT_EQ(a.count(), 1000u);
}

TEST(SequenceLog, TellsValuesCallsAndOrderApart) {
  const auto hash = [](std::initializer_list<std::pair<SequenceCall, uint64_t>> calls) {
    SequenceLog log;
    for (const auto& [call, value] : calls) log.Append(call, value);
    return log.hash();
  };
  const uint64_t reference = hash({{SequenceCall::kAllocate, 1}, {SequenceCall::kAllocate, 2}});
  EXPECT_NE(reference, hash({{SequenceCall::kAllocate, 2}, {SequenceCall::kAllocate, 1}}));
  EXPECT_NE(reference, hash({{SequenceCall::kAllocate, 1}, {SequenceCall::kRefused, 2}}));
  EXPECT_NE(reference, hash({{SequenceCall::kAllocate, 1}, {SequenceCall::kAllocate, 3}}));
  EXPECT_NE(reference, hash({{SequenceCall::kAllocate, 1}}));
  EXPECT_NE(hash({{SequenceCall::kAllocate, 0}}), hash({}));
}

TEST(SequenceLog, SeparatesThousandsAlone) {
  EXPECT_EQ(Describe({0, SequenceCall::kAllocate, 100}), "allocate 100 bytes (call 0)");
  EXPECT_EQ(Describe({0, SequenceCall::kAllocate, 100'000}), "allocate 100,000 bytes (call 0)");
}

// Otherwise two ranks whose calls differ in one bit could continue unnoticed.
TEST(SequenceLog, LetsEachBitOfAValueReachEachBitOfTheHash) {
  constexpr uint64_t kValues = 64;
  const auto hash = [](uint64_t value) {
    SequenceLog log;
    log.Append(SequenceCall::kAllocate, value);
    return log.hash();
  };
  for (int bit = 0; bit < 64; ++bit) {
    uint64_t reached = 0;
    for (uint64_t value = 0; value < kValues; ++value) reached |= hash(value) ^ hash(value ^ uint64_t{1} << bit);
    EXPECT_EQ(reached, ~uint64_t{0}) << "from bit " << bit;
  }
}

TEST(SequenceLog, TellsTheValuesOfEveryCallApart) {
  for (const SequenceCall call :
       {SequenceCall::kAllocate, SequenceCall::kRefused, SequenceCall::kFree, SequenceCall::kReserve,
        SequenceCall::kReclaim, SequenceCall::kTrim, SequenceCall::kRegister, SequenceCall::kDeregister}) {
    SequenceLog one;
    SequenceLog other;
    one.Append(call, 1);
    other.Append(call, 2);
    EXPECT_NE(one.hash(), other.hash()) << Describe(*one.Entry(0));
  }
}

TEST(SequenceLog, RemembersADifferenceForEver) {
  SequenceLog a;
  SequenceLog b;
  a.Append(SequenceCall::kAllocate, 512);
  b.Append(SequenceCall::kAllocate, 1024);
  for (int call = 0; call < 1000; ++call) {
    a.Append(SequenceCall::kFree, 0);
    b.Append(SequenceCall::kFree, 0);
    ASSERT_NE(a.hash(), b.hash());
  }
}

// Ranks may run different builds: the hash is part of what they exchange.
TEST(SequenceLog, GivesTheSameHashInEveryBuild) {
  SequenceLog log;
  EXPECT_EQ(log.hash(), 0x9e3779b97f4a7c15u);
  log.Append(SequenceCall::kAllocate, 65536);
  log.Append(SequenceCall::kReserve, uint64_t{1} << 30);
  EXPECT_EQ(log.hash(), 0xd43df906da4d0bffu);
}

TEST(SequenceLog, KeepsTheLastCalls) {
  SequenceLog log;
  EXPECT_EQ(log.Entry(0), std::nullopt);
  for (uint64_t value = 0; value < SequenceLog::kKept + 10; ++value) log.Append(SequenceCall::kTrim, value);
  EXPECT_EQ(log.Entry(9), std::nullopt);
  EXPECT_EQ(log.Entry(SequenceLog::kKept + 10), std::nullopt);
  for (uint64_t number = 10; number < SequenceLog::kKept + 10; ++number) {
    const std::optional<SequenceEntry> entry = log.Entry(number);
    ASSERT_TRUE(entry.has_value());
    EXPECT_EQ(entry->number, number);
    EXPECT_EQ(entry->value, number);
    EXPECT_EQ(entry->call, SequenceCall::kTrim);
  }
  EXPECT_EQ(log.Entry(log.count() - 1)->hash_after, log.hash());
}

TEST(SequenceLog, DescribesCalls) {
  const auto describe = [](SequenceCall call, uint64_t value) { return Describe({17, call, value, 0}); };
  EXPECT_EQ(describe(SequenceCall::kAllocate, 65536), "allocate 65,536 bytes (call 17)");
  EXPECT_EQ(describe(SequenceCall::kRefused, 1), "refused allocation of 1 bytes (call 17)");
  EXPECT_EQ(describe(SequenceCall::kFree, 100), "free of block 100 (call 17)");
  EXPECT_EQ(describe(SequenceCall::kReserve, 1048576), "reserve 1,048,576 bytes (call 17)");
  EXPECT_EQ(describe(SequenceCall::kReclaim, 0), "reclaim (call 17)");
  EXPECT_EQ(describe(SequenceCall::kTrim, 1000), "trim to 1,000 bytes (call 17)");
  EXPECT_EQ(describe(SequenceCall::kRegister, 2), "registration 2 (call 17)");
  EXPECT_EQ(describe(SequenceCall::kDeregister, 2), "deregistration 2 (call 17)");
}

}  // namespace
}  // namespace commpool::internal::engine
