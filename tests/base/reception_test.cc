#include "src/library/base/reception.h"

#include <gtest/gtest.h>

#include <vector>

namespace commpool::internal {
namespace {

constexpr std::chrono::milliseconds kShort{50};

Deadline Later() { return DeadlineAfter(std::chrono::seconds(60)); }

void Say(Connection& connection, const std::string& words) {
  ASSERT_TRUE(connection.Send(words.data(), words.size(), Later()).ok());
}

bool IsClosed(Connection& connection) {
  char byte = 0;
  return connection.Receive(&byte, 1, Later()).code() == StatusCode::kRemoteFailure;
}

class Receptions : public ::testing::Test {
 protected:
  explicit Receptions(ReceptionOptions options = {.hello_bytes = 5, .most_silent = 2, .challenge = {}})
      : reception_(Listener::Open().value(), std::move(options)) {}

  Connection Call() { return Connect(reception_.address(), Later()).value(); }

  Reception reception_;
};

TEST_F(Receptions, LetInWhoSaysHello) {
  Connection caller = Call();
  Say(caller, "hello");
  EXPECT_EQ(reception_.Next(Later()).value().hello, "hello");
}

TEST_F(Receptions, HearAHelloThatComesInParts) {
  Connection caller = Call();
  Say(caller, "he");
  EXPECT_EQ(reception_.Next(DeadlineAfter(kShort)).status().code(), StatusCode::kDeadlineExceeded);
  Say(caller, "llo, and more");
  Caller heard = reception_.Next(Later()).value();
  EXPECT_EQ(heard.hello, "hello");
  std::string more(10, '\0');
  ASSERT_TRUE(heard.connection.Receive(more.data(), more.size(), Later()).ok());
  EXPECT_EQ(more, ", and more");
}

TEST_F(Receptions, LetASilentCallerDelayNobody) {
  const Connection silent = Call();
  Connection caller = Call();
  Say(caller, "hello");
  EXPECT_TRUE(reception_.Next(Later()).ok());
}

TEST_F(Receptions, DropTheOneThatHasBeenSilentLongestForANewOne) {
  Connection first = Call();
  Connection second = Call();
  EXPECT_FALSE(reception_.Next(DeadlineAfter(kShort)).ok());
  Connection third = Call();
  EXPECT_FALSE(reception_.Next(DeadlineAfter(kShort)).ok());
  EXPECT_TRUE(IsClosed(first));
  for (Connection* caller : {&second, &third}) Say(*caller, "hello");
  EXPECT_TRUE(reception_.Next(Later()).ok());
  EXPECT_TRUE(reception_.Next(Later()).ok());
}

TEST_F(Receptions, DropNobodyThatHasSpoken) {
  Connection first = Call();
  Connection second = Call();
  EXPECT_FALSE(reception_.Next(DeadlineAfter(kShort)).ok());
  Say(first, "hello");
  const Connection third = Call();
  EXPECT_EQ(reception_.Next(Later()).value().hello, "hello");
  Say(second, "hullo");
  EXPECT_EQ(reception_.Next(Later()).value().hello, "hullo");
}

TEST_F(Receptions, ForgetWhoGoes) {
  { const Connection gone = Call(); }
  Connection caller = Call();
  Say(caller, "hello");
  EXPECT_EQ(reception_.Next(Later()).value().hello, "hello");
  EXPECT_EQ(reception_.Next(DeadlineAfter(kShort)).status().code(), StatusCode::kDeadlineExceeded);
}

class ChallengingReceptions : public Receptions {
 protected:
  ChallengingReceptions()
      : Receptions({.hello_bytes = 5, .most_silent = 2, .challenge = [this]() -> Result<std::string> {
                      return "who " + std::to_string(++challenges_);
                    }}) {}

  int challenges_ = 0;
};

TEST_F(ChallengingReceptions, RememberWhatEachCallerWasTold) {
  std::vector<Connection> callers;
  for (int caller = 0; caller < 2; ++caller) callers.push_back(Call());
  EXPECT_FALSE(reception_.Next(DeadlineAfter(kShort)).ok());
  Say(callers[1], "hello");
  EXPECT_EQ(reception_.Next(Later()).value().challenge, "who 2");
  std::string told(5, '\0');
  ASSERT_TRUE(callers[0].Receive(told.data(), told.size(), Later()).ok());
  EXPECT_EQ(told, "who 1");
}

}  // namespace
}  // namespace commpool::internal
