// The states of a pool: which transitions exist, and that none leads back.
#include <gtest/gtest.h>

#include <string>

#include "src/library/pool/basis/pool_basis.h"

namespace commpool::internal {
namespace {

using State = PoolLife::State;

TEST(PoolLife, BeginsOpen) {
  const PoolLife life;
  EXPECT_EQ(life.state(), State::kOpen);
  EXPECT_TRUE(life.open());
  EXPECT_FALSE(life.closed());
  EXPECT_TRUE(life.CheckOpen().ok());
}

TEST(PoolLife, ServesNoMoreOnceItCloses) {
  PoolLife life;
  life.BeginClose();
  EXPECT_FALSE(life.open());
  EXPECT_FALSE(life.closed()) << "a close that failed is made again";
  EXPECT_EQ(life.CheckOpen().code(), StatusCode::kFailedPrecondition);
  life.EndClose();
  EXPECT_TRUE(life.closed());
  EXPECT_FALSE(life.destroyed());
}

TEST(PoolLife, EndsWithItsHandleFromAnyState) {
  for (const int before : {0, 1, 2}) {
    PoolLife life;
    if (before > 0) life.BeginClose();
    if (before > 1) life.EndClose();
    life.Destroy();
    EXPECT_TRUE(life.destroyed());
    EXPECT_NE(life.CheckOpen().message().find("destroyed"), std::string::npos);
  }
}

TEST(PoolLife, SleepsAndServesAgain) {
  PoolLife life;
  life.EndSleep();
  EXPECT_TRUE(life.open()) << "it did not sleep";
  life.BeginSleep();
  EXPECT_TRUE(life.asleep());
  EXPECT_FALSE(life.open());
  EXPECT_FALSE(life.closed());
  EXPECT_NE(life.CheckOpen().message().find("is asleep: wake() it first"), std::string::npos);
  life.EndSleep();
  EXPECT_TRUE(life.open());
}

TEST(PoolLife, EndsAsleepToo) {
  PoolLife life;
  life.BeginSleep();
  life.BeginClose();
  life.EndSleep();
  EXPECT_EQ(life.state(), State::kClosing) << "others end it meanwhile";
  life.EndClose();
  life.BeginSleep();
  EXPECT_TRUE(life.closed());
}

TEST(PoolLife, NeverReturnsToAnEarlierState) {
  PoolLife life;
  life.Destroy();
  life.BeginClose();
  life.EndClose();
  EXPECT_EQ(life.state(), State::kDestroyed);
  life.Abandon();
  life.Destroy();
  EXPECT_EQ(life.state(), State::kAbandoned);
}

}  // namespace
}  // namespace commpool::internal
