// Messages between an owner and an import: where one of them stands still, and their parser under a million damaged
// ones.
#include "src/library/sharing/message_channel.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstdlib>
#include <memory>
#include <random>
#include <utility>

#include "tests/base/expect_status.h"

namespace commpool::internal::testing {
namespace {

struct Ends {
  PrivateDescriptor near;
  PrivateDescriptor far;
};

Ends Connected() {
  const PrivateDescriptor listener = PrivateDescriptor::OpenSocket(PrivateDescriptor::Kind::kLocalMessages);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  auto* const name = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(bind(listener.get(), name, sizeof(sa_family_t)), 0);  // the system chooses a name
  socklen_t bytes = sizeof(address);
  EXPECT_EQ(getsockname(listener.get(), name, &bytes), 0);
  EXPECT_EQ(listen(listener.get(), 1), 0);
  Ends ends{PrivateDescriptor::OpenSocket(PrivateDescriptor::Kind::kLocalMessages), {}};
  EXPECT_EQ(connect(ends.near.get(), name, bytes), 0);
  ends.far = PrivateDescriptor::Accept(listener.get());
  return ends;
}

// What an import let go while its owner stood still was lost, and its blocks never served again.
TEST(MessageChannel, LosesNothingToASideThatReadsLate) {
  constexpr uint64_t kMessages = 2000;
  Ends ends = Connected();
  MessageChannel sender(std::move(ends.near));
  MessageChannel reader(std::move(ends.far));
  for (uint64_t number = 0; number < kMessages; ++number) {
    ASSERT_TRUE(sender.Send({ShareKind::kLetGo, {number}}).ok()) << number;
  }
  EXPECT_TRUE(sender.is_overfull());
  for (uint64_t number = 0; number < kMessages; ++number) {
    ASSERT_TRUE(sender.SendQueued().ok());
    const std::optional<Received> received = reader.Receive().value();
    ASSERT_TRUE(received.has_value()) << number;
    EXPECT_EQ(received->message.numbers[0], number);
  }
  EXPECT_FALSE(sender.has_queued());
}

TEST(MessageChannel, TellsThatTheOtherSideHasEnded) {
  Ends ends = Connected();
  MessageChannel sender(std::move(ends.near));
  ends.far = PrivateDescriptor();
  EXPECT_FALSE(sender.Send({ShareKind::kLetGo, {1}}).ok());
  EXPECT_EQ(sender.Receive().status().code(), StatusCode::kRemoteFailure);
}

ShareMessage Example() { return {ShareKind::kSegment, {1, UINT64_MAX, 3, 4}, std::string("text\0with zero", 14), 77}; }

TEST(ShareWire, MessagesComeBackFromTheirBytes) {
  for (uint16_t kind = 1; kind <= static_cast<uint16_t>(ShareKind::kLast); ++kind) {
    ShareMessage message = Example();
    message.kind = static_cast<ShareKind>(kind);
    const ShareMessage read = DecodeShare(EncodeShare(message)).value();
    EXPECT_EQ(read.kind, message.kind);
    EXPECT_EQ(read.numbers, message.numbers);
    EXPECT_EQ(read.text, message.text);
    EXPECT_EQ(read.question, message.question);
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
  ExpectFailure(DecodeShare(bytes).status(), StatusCode::kNotSupported, "speaks version 9");
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
}  // namespace commpool::internal::testing
