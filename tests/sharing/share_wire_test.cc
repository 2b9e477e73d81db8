// The messages between an owner and its importers, and their parser under a million damaged ones.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <random>

#include "src/library/sharing/message_channel.h"

namespace commpool::internal {
namespace {

ShareMessage Example() { return {ShareKind::kSegment, {1, UINT64_MAX, 3, 4}, std::string("text\0with zero", 14), 77}; }

void ExpectEqual(const ShareMessage& one, const ShareMessage& other) {
  EXPECT_EQ(one.kind, other.kind);
  EXPECT_EQ(one.numbers, other.numbers);
  EXPECT_EQ(one.text, other.text);
  EXPECT_EQ(one.question, other.question);
}

TEST(ShareWire, MessagesComeBackFromTheirBytes) {
  for (uint16_t kind = 1; kind <= static_cast<uint16_t>(ShareKind::kLast); ++kind) {
    ShareMessage message = Example();
    message.kind = static_cast<ShareKind>(kind);
    const Result<ShareMessage> read = DecodeShare(EncodeShare(message));
    ASSERT_TRUE(read.ok()) << read.status().message();
    ExpectEqual(*read, message);
  }
}

TEST(ShareWire, ALongTextIsCut) {
  ShareMessage message = Example();
  message.text.assign(2 * kMostShareText, 'x');
  const std::string bytes = EncodeShare(message);
  EXPECT_EQ(bytes.size(), kMostShareBytes);
  EXPECT_EQ(DecodeShare(bytes).value().text.size(), kMostShareText);
}

TEST(ShareWire, MessagesThatWereCutOrGrewAreRefused) {
  const std::string bytes = EncodeShare(Example());
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(DecodeShare(bytes.substr(0, size)).status().code(), StatusCode::kInvalidArgument) << size;
  }
  EXPECT_FALSE(DecodeShare(bytes + "x").ok());
}

TEST(ShareWire, AnotherVersionIsNamed) {
  std::string bytes = EncodeShare(Example());
  bytes[4] = 9;
  const Status status = DecodeShare(bytes).status();
  EXPECT_EQ(status.code(), StatusCode::kNotSupported);
  EXPECT_NE(status.message().find("speaks version 9"), std::string::npos) << status.message();
}

TEST(ShareWire, ARefusalTellsItsStatus) {
  const Status told(StatusCode::kNotFound, "the block was freed");
  const ShareMessage refusal = DecodeShare(EncodeShare(RefusalOf(told, 5))).value();
  EXPECT_EQ(refusal.question, 5u);
  EXPECT_EQ(StatusOf(refusal).code(), told.code());
  EXPECT_EQ(StatusOf(refusal).message(), told.message());
  const ShareMessage odd{ShareKind::kRefused, {999}, "\x1b[2J"};
  EXPECT_EQ(StatusOf(odd).code(), StatusCode::kRemoteFailure);
  EXPECT_EQ(StatusOf(odd).message(), "\\x1b[2J") << "nobody's words reach a terminal as they are";
}

// Random messages get a few random changes, in memory of exactly their size: so a sanitizer notices a read behind it.
// SHARE_WIRE_MESSAGES sets how many; the seed is fixed.
TEST(ShareWire, DamagedMessagesAreRefusedOrWhole) {
  const char* const asked = std::getenv("SHARE_WIRE_MESSAGES");
  const long messages = asked == nullptr ? 1'000'000 : std::atol(asked);
  std::mt19937_64 random(20261124);
  std::string seed;
  long whole = 0;
  for (long number = 0; number < messages; ++number) {
    if (number % 64 == 0) {
      ShareMessage message = Example();
      message.kind = static_cast<ShareKind>(random() % 15);
      message.text.assign(random() % 100, static_cast<char>(random()));
      seed = EncodeShare(message);
    }
    std::string bytes = seed;
    for (uint64_t changes = random() % 4; changes > 0; --changes) {
      const size_t place = random() % (random() % 2 == 0 ? 24 : bytes.size());
      if (place < bytes.size()) bytes[place] = static_cast<char>(random());
    }
    if (random() % 4 == 0) bytes.resize(random() % (bytes.size() + 8));
    const std::unique_ptr<char[]> exact(new char[bytes.size()]);
    bytes.copy(exact.get(), bytes.size());
    const Result<ShareMessage> read = DecodeShare({exact.get(), bytes.size()});
    if (!read.ok()) continue;
    ++whole;
    ASSERT_EQ(EncodeShare(*read), bytes) << "what is taken is taken whole";
  }
  EXPECT_GT(whole, messages / 10);
  EXPECT_LT(whole, messages);
}

}  // namespace
}  // namespace commpool::internal
