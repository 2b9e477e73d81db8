// Programs that were compiled against a newer commpool.h, at today's C ABI.
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "commpool/commpool.h"

namespace {

// Structs of a later version, as that version's init functions set them.
struct NewerPoolOptions {
  NewerPoolOptions() {
    commpool_pool_options_init(&known);
    known.struct_bytes = sizeof(*this);
  }
  commpool_pool_options known;
  uint64_t later = 0;
};
struct NewerScopeOptions {
  NewerScopeOptions() {
    commpool_scope_options_init(&known);
    known.struct_bytes = sizeof(*this);
  }
  commpool_scope_options known;
  uint64_t later = 0;
};

void ExpectNotSupported(commpool_status status, const char* what) {
  EXPECT_EQ(status, COMMPOOL_NOT_SUPPORTED) << commpool_last_error();
  EXPECT_NE(std::string(commpool_last_error()).find(what), std::string::npos) << commpool_last_error();
  EXPECT_NE(std::string(commpool_last_error()).find("built against a newer commpool"), std::string::npos)
      << commpool_last_error();
}

TEST(ANewerProgram, IsServedWhereItSetsNothingNew) {
  NewerPoolOptions options;
  commpool_pool pool = 0;
  ASSERT_EQ(commpool_pool_create(&options.known, &pool), COMMPOOL_OK) << commpool_last_error();
  NewerScopeOptions scope_options;
  commpool_scope scope = 0;
  ASSERT_EQ(commpool_scope_begin(pool, &scope_options.known, &scope), COMMPOOL_OK) << commpool_last_error();
  EXPECT_EQ(commpool_scope_end(scope), COMMPOOL_OK) << commpool_last_error();
  EXPECT_EQ(commpool_pool_destroy(pool), COMMPOOL_OK) << commpool_last_error();
}

TEST(ANewerProgram, IsToldWhereItSetsWhatThisLibraryDoesNotKnow) {
  NewerPoolOptions options;
  options.later = 1;
  commpool_pool pool = 7;
  ExpectNotSupported(commpool_pool_create(&options.known, &pool), "pool options");
  EXPECT_EQ(pool, 7u) << "outputs are not written";
  NewerScopeOptions scope_options;
  scope_options.later = 1;
  commpool_scope scope = 7;
  ASSERT_EQ(commpool_default_pool(0, &pool), COMMPOOL_OK) << commpool_last_error();
  ExpectNotSupported(commpool_scope_begin(pool, &scope_options.known, &scope), "scope options");
  EXPECT_EQ(scope, 7u) << "outputs are not written";
}

TEST(ANewerProgram, PassesArraysOfItsOwnStructs) {
  std::array<NewerPoolOptions, 2> options;
  options[1].known.limit_bytes = 2 << 20;
  std::array<commpool_pool, 2> pools = {0, 0};
  ASSERT_EQ(commpool_pools_create(&options[0].known, 2, pools.data()), COMMPOOL_OK) << commpool_last_error();
  EXPECT_EQ(commpool_pool_reserve(pools[0], 4 << 20), COMMPOOL_OK) << commpool_last_error();
  EXPECT_EQ(commpool_pool_reserve(pools[1], 4 << 20), COMMPOOL_OUT_OF_MEMORY) << "the second's limit was read";
  for (const commpool_pool pool : pools) EXPECT_EQ(commpool_pool_destroy(pool), COMMPOOL_OK);

  options[1].known.struct_bytes = sizeof(commpool_pool_options);
  EXPECT_EQ(commpool_pools_create(&options[0].known, 2, pools.data()), COMMPOOL_INVALID_ARGUMENT);
  EXPECT_NE(std::string(commpool_last_error()).find("struct_bytes of place 1 is 192, of place 0 200"),
            std::string::npos)
      << commpool_last_error();
}

TEST(ANewerProgram, FindsZeroInFiguresThatThisLibraryDoesNotHave) {
  commpool_pool pool = 0;
  ASSERT_EQ(commpool_default_pool(0, &pool), COMMPOOL_OK) << commpool_last_error();
  struct {
    commpool_statistics known;
    uint64_t later = 7;
    uint64_t beyond = 7;
  } newer;
  commpool_statistics_init(&newer.known);
  newer.known.struct_bytes += sizeof(newer.later);
  EXPECT_EQ(commpool_pool_statistics(pool, &newer.known), COMMPOOL_OK) << commpool_last_error();
  EXPECT_EQ(newer.later, 0u);
  EXPECT_EQ(newer.beyond, 7u) << "it is not the struct's";
}

}  // namespace
