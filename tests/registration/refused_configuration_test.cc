// COMMPOOL_CONF is wrong on one rank: it opens nothing there, and the other ranks get the reason instead of waiting.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "commpool/commpool.h"
#include "src/library/driver/handles.h"
#include "tests/driver/emulator_fixture.h"
#include "tests/registration/forked_ranks.h"

namespace commpool::internal::testing {
namespace {

constexpr int kRanks = 2;

[[noreturn]] void LiveAsRank(int number, const Pipe& pipe_of_id) {
  if (number == 1) setenv("COMMPOOL_CONF", "limt:2MiB", 1);
  const Driver& driver = *SharedDriver();
  const PrimaryContext context = PrimaryContext::Retain(driver, number).value();
  const ContextGuard current(driver, context);
  commpool_pool_options options;
  commpool_pool_options_init(&options);
  options.device = number;
  options.symmetric_across = ConnectForkedRank(driver, number, kRanks, pipe_of_id);
  options.deadline_ms = 10000;
  commpool_pool pool = 0;
  const commpool_status status = commpool_pool_create(&options, &pool);
  const std::string told = commpool_last_error();
  EXPECT_EQ(status, COMMPOOL_INVALID_ARGUMENT) << told;
  EXPECT_NE(told.find("rank 1 cannot create: COMMPOOL_CONF says limt:2MiB"), std::string::npos) << told;
  void* pointer = nullptr;
  const commpool_status alone = commpool_allocate(number, 512, nullptr, &pointer);
  EXPECT_EQ(alone, number == 1 ? COMMPOOL_INVALID_ARGUMENT : COMMPOOL_OK) << "nothing goes on with defaults";
  _exit(::testing::Test::HasFailure() ? 1 : 0);
}

TEST(ARefusedConfiguration, IsToldToAllRanks) {
  for (const int state : RunForkedRanks(kRanks, LiveAsRank)) EXPECT_TRUE(EndedWell(state)) << state;
}

}  // namespace
}  // namespace commpool::internal::testing
