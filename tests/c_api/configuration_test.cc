// The configuration that a program can list. COMMPOOL_CONF is gradients.limit:2MiB,alignment:4K (BUILD).
#include "commpool/configuration.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <map>
#include <string>

#include "commpool/commpool.h"
#include "commpool/pool.h"

namespace commpool {
namespace {

// Key -> "value from source", of every pool's or of those of `pool`.
std::map<std::string, std::string> ByKey(const Result<std::vector<Setting>>& settings, const std::string& pool) {
  EXPECT_TRUE(settings.ok()) << settings.status().message();
  std::map<std::string, std::string> found;
  if (!settings.ok()) return found;
  for (const Setting& setting : *settings) {
    if (setting.pool == pool) found[setting.key] = setting.value + " from " + setting.source;
  }
  return found;
}

TEST(TheConfiguration, IsToldBeforeTheDriverIsOpen) {
  const auto general = ByKey(configuration(), "");
  EXPECT_STREQ(commpool_driver_description(), "");
  EXPECT_EQ(general.at("alignment"), "4KiB from COMMPOOL_CONF alignment:4K");
  EXPECT_EQ(general.at("limit"), "none from default");
  EXPECT_EQ(ByKey(configuration(), "gradients").at("limit"), "2MiB from COMMPOOL_CONF gradients.limit:2MiB");
}

TEST(TheConfiguration, OfAPoolTellsWhatIsInForceAndWhy) {
  Pool pool = Pool::create({.name = "gradients", .deadline_ms = 1000}).value();
  const auto found = ByKey(configuration(pool), "gradients");
  EXPECT_EQ(found.at("limit"), "2MiB from COMMPOOL_CONF gradients.limit:2MiB");
  EXPECT_EQ(found.at("alignment"), "4KiB from COMMPOOL_CONF alignment:4K");
  EXPECT_EQ(found.at("deadline"), "1s from code");
  EXPECT_EQ(found.at("mode"), "fixed from default");
  EXPECT_EQ(pool.reserve(MiB(4)).code(), StatusCode::kOutOfMemory) << "the limit holds";
}

TEST(TheConfiguration, OfAPoolTellsWhatItsMemoryIsAndWhyItIsNothingBetter) {
  Pool pool = Pool::create({.name = "offloaded", .location = Location::kHostNuma, .numa_node = 1}).value();
  const std::string memory = ByKey(configuration(pool), "offloaded").at("memory");
  EXPECT_EQ(memory.find("host NUMA node 1, file descriptor handles, node as its handles say from fabric handles: cu"),
            0u)
      << memory;
}

TEST(TheConfiguration, OfAPoolTellsWhatRegistrarsAskOfItsSegments) {
  const auto segments_of = [](PoolOptions options) {
    options.name = "transfers";
    return ByKey(configuration(Pool::create(options).value()), "transfers").at("segments");
  };
  EXPECT_EQ(segments_of({}),
            "location:device,numa_node:-1,granularity:2097152,one_handle:1,descriptor:1,fabric:1,rdma:1 from driver");
  EXPECT_EQ(segments_of({.location = Location::kHostNuma, .numa_node = 1}).find("location:host_numa,numa_node:1,"), 0u);
  EXPECT_NE(segments_of({.backing = Backing::kCuda}).find("one_handle:0,descriptor:0,fabric:0,rdma:0"),
            std::string::npos);
}

TEST(TheConfiguration, OfAPoolTellsWhoHasAccess) {
  const auto access = [](const Pool& pool, const std::string& name) {
    return ByKey(configuration(pool), name).at("access");
  };
  Pool granted = Pool::create({.name = "granted", .device = 1, .peers = {3}}).value();
  EXPECT_EQ(access(granted, "granted"), "1 3 from granted");
  const int other = 0;
  ASSERT_EQ(commpool_pool_set_access(granted.handle(), &other, 1, COMMPOOL_ACCESS_GRANTED), COMMPOOL_OK)
      << commpool_last_error();
  EXPECT_EQ(access(granted, "granted"), "0 1 3 from granted");
  const int first = 3;
  ASSERT_EQ(commpool_pool_set_access(granted.handle(), &first, 1, COMMPOOL_ACCESS_REVOKED), COMMPOOL_OK)
      << commpool_last_error();
  EXPECT_EQ(access(granted, "granted"), "0 1 from granted");

  Pool on_host = Pool::create({.name = "on host", .location = Location::kHostNuma}).value();
  EXPECT_EQ(access(on_host, "on host"), "0 cpu from granted");
  Pool pinned = Pool::create({.name = "pinned", .backing = Backing::kPinned}).value();
  EXPECT_EQ(access(pinned, "pinned").find("0 1 2 3 cpu from every device"), 0u) << access(pinned, "pinned");
  Pool of_nccl = Pool::create({.name = "of nccl", .device = 2, .backing = Backing::kNccl}).value();
  EXPECT_EQ(access(of_nccl, "of nccl").find("0 1 2 3 from ncclMemAlloc grants"), 0u) << access(of_nccl, "of nccl");
  Pool linear = Pool::create({.name = "linear", .backing = Backing::kCuda, .peers = {1}}).value();
  EXPECT_EQ(access(linear, "linear").find("0 1 from cuCtxEnablePeerAccess opened all"), 0u) << access(linear, "linear");
}

TEST(TheConfiguration, OfAPoolTellsWhoReadsAlone) {
  Pool pool = Pool::create({.name = "weights", .device = 1, .peers = {1, 3}, .grants = Grants::kRead}).value();
  ASSERT_TRUE(pool.grant({0}).ok());
  auto found = ByKey(configuration(pool), "weights");
  EXPECT_EQ(found.at("access"), "0:read 1 3:read from granted");
  EXPECT_EQ(found.at("grants"), "read from code");
  ASSERT_TRUE(pool.revoke({3}).ok());
  EXPECT_EQ(ByKey(configuration(pool), "weights").at("access"), "0:read 1 from granted");
}

TEST(TheConfiguration, GrantsThatOthersHaveGivenAlreadyAreRefused) {
  for (const Backing backing : {Backing::kCuda, Backing::kNccl, Backing::kPinned}) {
    const Status status = Pool::create({.backing = backing, .grants = Grants::kRead}).status();
    EXPECT_EQ(status.code(), StatusCode::kNotSupported);
    EXPECT_NE(status.message().find("grants READ"), std::string::npos) << status.message();
  }
}

TEST(TheConfiguration, YieldsToValuesInCodeThatAreTheDefaults) {
  Pool pool = Pool::create({.name = "gradients", .alignment_bytes = 512, .limit_bytes = UINT64_MAX}).value();
  const auto found = ByKey(configuration(pool), "gradients");
  EXPECT_EQ(found.at("alignment"), "512 from code");
  EXPECT_EQ(found.at("limit"), "none from code");
  EXPECT_TRUE(pool.reserve(MiB(4)).ok());
}

TEST(TheConfiguration, TakesADefaultThatNobodyGaveForUnset) {
  commpool_pool_options options;
  commpool_pool_options_init(&options);
  commpool_pool pool = 0;
  ASSERT_EQ(commpool_pool_create(&options, &pool), COMMPOOL_OK) << commpool_last_error();
  std::array<commpool_setting, 64> settings;
  size_t count = 0;
  ASSERT_EQ(commpool_configuration(pool, settings.data(), sizeof(commpool_setting), settings.size(), &count),
            COMMPOOL_OK);
  int found = 0;
  for (size_t place = 0; place < count; ++place) {
    if (settings[place].key != std::string("alignment")) continue;
    EXPECT_STREQ(settings[place].value, "4KiB");
    ++found;
  }
  EXPECT_EQ(found, 1);
  EXPECT_EQ(commpool_pool_destroy(pool), COMMPOOL_OK);
}

TEST(TheConfiguration, OptionsThatNobodyKnowsAreRefused) {
  commpool_pool_options options;
  commpool_pool_options_init(&options);
  options.given = 2 * COMMPOOL_OPTION_BUDGET;
  commpool_pool pool = 7;
  EXPECT_EQ(commpool_pool_create(&options, &pool), COMMPOOL_INVALID_ARGUMENT);
  EXPECT_NE(std::string(commpool_last_error()).find("given 2048"), std::string::npos) << commpool_last_error();
  EXPECT_EQ(pool, 7u);
}

TEST(TheConfiguration, IsWrittenAsFarAsThereIsRoom) {
  std::array<commpool_setting, 2> settings = {};
  size_t count = 0;
  ASSERT_EQ(commpool_configuration(0, nullptr, 0, 0, &count), COMMPOOL_OK);
  EXPECT_GT(count, 2u);
  ASSERT_EQ(commpool_configuration(0, settings.data(), sizeof(commpool_setting), 1, &count), COMMPOOL_OK);
  EXPECT_NE(settings[0].key, nullptr);
  EXPECT_EQ(settings[1].key, nullptr);
  EXPECT_EQ(commpool_configuration(0, nullptr, 0, 0, nullptr), COMMPOOL_INVALID_ARGUMENT);
  EXPECT_EQ(commpool_configuration(0, settings.data(), 8, 1, &count), COMMPOOL_INVALID_ARGUMENT);
  EXPECT_NE(std::string(commpool_last_error()).find("sizeof(commpool_setting)"), std::string::npos);
}

TEST(TheConfiguration, IsReadOnce) {
  setenv("COMMPOOL_CONF", "alignment:8K", 1);
  EXPECT_EQ(ByKey(configuration(), "").at("alignment"), "4KiB from COMMPOOL_CONF alignment:4K");
}

}  // namespace
}  // namespace commpool
