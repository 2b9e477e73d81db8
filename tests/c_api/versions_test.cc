// Programs that were compiled against another minor version's commpool.h, with other struct sizes, call today's C ABI:
// they get a message, and nothing is written. (The loader's refusal: tests/house/exported_symbols_test.py.)
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "commpool/commpool.h"

namespace {

// How much larger or smaller another version's struct is.
constexpr std::array kDifferences = {-8, 8};

void ExpectRefused(commpool_status status, const char* what) {
  const std::string version = "commpool " + std::to_string(COMMPOOL_VERSION_MAJOR) + "." +
                              std::to_string(COMMPOOL_VERSION_MINOR) + "." + std::to_string(COMMPOOL_VERSION_PATCH);
  EXPECT_EQ(status, COMMPOOL_INVALID_ARGUMENT) << commpool_last_error();
  for (const std::string& part : {std::string(what), version, std::string("build the program with this version")}) {
    EXPECT_NE(std::string(commpool_last_error()).find(part), std::string::npos)
        << part << ": " << commpool_last_error();
  }
}

class AProgramOfAnotherMinorVersion : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { ASSERT_EQ(commpool_default_pool(0, &pool_), COMMPOOL_OK) << commpool_last_error(); }

  size_t Other(size_t bytes) const { return bytes + static_cast<size_t>(GetParam()); }

  commpool_pool pool_ = 0;
};

TEST_P(AProgramOfAnotherMinorVersion, MakesNoPool) {
  std::array<commpool_pool_options, 2> options;
  for (commpool_pool_options& each : options) commpool_pool_options_init(&each);
  std::array<commpool_pool, 2> pools = {7, 7};
  options[1].struct_bytes = Other(sizeof(options[1]));
  ExpectRefused(commpool_pools_create(options.data(), 2, pools.data()), "pool options: struct_bytes");
  options[0].struct_bytes = Other(sizeof(options[0]));
  ExpectRefused(commpool_pools_create(options.data(), 2, pools.data()), "pool options: struct_bytes");
  ExpectRefused(commpool_pool_create(options.data(), pools.data()), "pool options: struct_bytes");
  EXPECT_EQ(pools, (std::array<commpool_pool, 2>{7, 7})) << "outputs are not written";
}

TEST_P(AProgramOfAnotherMinorVersion, BeginsNoScope) {
  commpool_scope_options options;
  commpool_scope_options_init(&options);
  options.struct_bytes = Other(sizeof(options));
  commpool_scope scope = 7;
  ExpectRefused(commpool_scope_begin(pool_, &options, &scope), "scope options: struct_bytes");
  EXPECT_EQ(scope, 7u) << "outputs are not written";
}

TEST_P(AProgramOfAnotherMinorVersion, AddsNoHolder) {
  commpool_holder_options options;
  commpool_holder_options_init(&options);
  options.struct_bytes = Other(sizeof(options));
  commpool_holder holder = 7;
  ExpectRefused(commpool_add_holder(&options, &holder), "holder options: struct_bytes");
  EXPECT_EQ(holder, 7u) << "outputs are not written";
}

TEST_P(AProgramOfAnotherMinorVersion, ReadsNoStatistics) {
  commpool_statistics statistics;
  commpool_statistics_init(&statistics);
  statistics.struct_bytes = Other(sizeof(statistics));
  statistics.kept_bytes = 7;
  ExpectRefused(commpool_pool_statistics(pool_, COMMPOOL_PEAKS_STAY, &statistics), "statistics: struct_bytes");
  EXPECT_EQ(statistics.kept_bytes, 7u) << "outputs are not written";
}

TEST_P(AProgramOfAnotherMinorVersion, ListsNothing) {
  commpool_block block = {};
  commpool_setting setting = {};
  commpool_driver_call call = {};
  size_t count = 7;
  void* pointer = nullptr;
  ASSERT_EQ(commpool_pool_allocate(pool_, 512, nullptr, &pointer), COMMPOOL_OK) << commpool_last_error();
  const char* const what = "entry_bytes";
  ExpectRefused(commpool_block_of(pointer, &block, Other(sizeof(block))), what);
  ExpectRefused(commpool_pool_blocks(pool_, &block, Other(sizeof(block)), 1, &count), what);
  ExpectRefused(commpool_configuration(pool_, &setting, Other(sizeof(setting)), 1, &count), what);
  ExpectRefused(commpool_configuration(0, &setting, Other(sizeof(setting)), 1, &count), what);
  ExpectRefused(commpool_driver_calls(&call, Other(sizeof(call)), 1, &count), what);
  EXPECT_EQ(count, 7u) << "outputs are not written";
  EXPECT_EQ(block.pointer, nullptr);
  EXPECT_EQ(commpool_free(pointer), COMMPOOL_OK);
}

INSTANTIATE_TEST_SUITE_P(OlderAndNewer, AProgramOfAnotherMinorVersion, ::testing::ValuesIn(kDifferences));

}  // namespace
