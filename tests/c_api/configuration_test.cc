// The configuration that a program can list. COMMPOOL_CONF is gradients.limit:2MiB,alignment:4K (BUILD).
#include "commpool/configuration.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <map>
#include <string>

#include "commpool/pool.h"
#include "tests/c_api/c_abi.h"

namespace commpool::internal::testing {
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

void ExpectStart(const std::string& text, const std::string& start, Caller caller = {}) {
  EXPECT_EQ(text.substr(0, start.size()), start) << caller.file << ":" << caller.line << ": " << text;
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
  ExpectStart(ByKey(configuration(pool), "offloaded").at("memory"),
              "host NUMA node 1, file descriptor handles, node as its handles say from fabric handles: cu");
}

TEST(TheConfiguration, OfAPoolTellsWhatRegistrarsAskOfItsSegments) {
  const auto segments_of = [](PoolOptions options) {
    options.name = "transfers";
    return ByKey(configuration(Pool::create(options).value()), "transfers").at("segments");
  };
  EXPECT_EQ(segments_of({}),
            "location:device,numa_node:-1,granularity:2097152,one_handle:1,descriptor:1,fabric:1,rdma:1 from driver");
  ExpectStart(segments_of({.location = Location::kHostNuma, .numa_node = 1}), "location:host_numa,numa_node:1,");
  EXPECT_NE(segments_of({.backing = Backing::kCuda}).find("one_handle:0,descriptor:0,fabric:0,rdma:0"),
            std::string::npos);
}

TEST(TheConfiguration, OfAPoolTellsWhoHasAccess) {
  const auto access = [](const Pool& pool, const std::string& name) {
    return ByKey(configuration(pool), name).at("access");
  };
  Pool granted = Pool::create({.name = "granted", .device = 1, .peers = {3}}).value();
  EXPECT_EQ(access(granted, "granted"), "1 3 from granted");
  ExpectOk(granted.grant({0}));
  EXPECT_EQ(access(granted, "granted"), "0 1 3 from granted");
  ExpectOk(granted.revoke({3}));
  EXPECT_EQ(access(granted, "granted"), "0 1 from granted");

  const auto of = [&](PoolOptions options) {
    options.name = "pool";
    return access(Pool::create(options).value(), "pool");
  };
  EXPECT_EQ(of({.location = Location::kHostNuma}), "0 cpu from granted");
  ExpectStart(of({.backing = Backing::kPinned}), "0 1 2 3 cpu from every device");
  ExpectStart(of({.device = 2, .backing = Backing::kNccl}), "0 1 2 3 from ncclMemAlloc grants");
  ExpectStart(of({.backing = Backing::kCuda, .peers = {1}}), "0 1 from cuCtxEnablePeerAccess opened all");
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
    ExpectFailure(Pool::create({.backing = backing, .grants = Grants::kRead}).status(), StatusCode::kNotSupported,
                  "grants READ");
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
  const OwnedPool pool;
  std::array<commpool_setting, 64> settings;
  size_t count = 0;
  ExpectOk(commpool_configuration(pool, settings.data(), sizeof(commpool_setting), settings.size(), &count));
  int found = 0;
  for (size_t place = 0; place < count; ++place) {
    if (settings[place].key != std::string("alignment")) continue;
    EXPECT_STREQ(settings[place].value, "4KiB");
    ++found;
  }
  EXPECT_EQ(found, 1);
}

TEST(TheConfiguration, OptionsThatNobodyKnowsAreRefused) {
  auto options = Initialised(commpool_pool_options_init);
  options.given = 2 * COMMPOOL_OPTION_BUDGET;
  commpool_pool pool = 7;
  ExpectInvalid(commpool_pool_create(&options, &pool), "given 2048");
  EXPECT_EQ(pool, 7u);
}

TEST(TheConfiguration, IsWrittenAsFarAsThereIsRoom) {
  std::array<commpool_setting, 2> settings = {};
  size_t count = 0;
  ExpectOk(commpool_configuration(0, nullptr, 0, 0, &count));
  EXPECT_GT(count, 2u);
  ExpectOk(commpool_configuration(0, settings.data(), sizeof(commpool_setting), 1, &count));
  EXPECT_NE(settings[0].key, nullptr);
  EXPECT_EQ(settings[1].key, nullptr);
  EXPECT_EQ(commpool_configuration(0, nullptr, 0, 0, nullptr), COMMPOOL_INVALID_ARGUMENT);
  ExpectInvalid(commpool_configuration(0, settings.data(), 8, 1, &count), "sizeof(commpool_setting)");
}

TEST(TheConfiguration, IsReadOnce) {
  setenv("COMMPOOL_CONF", "alignment:8K", 1);
  EXPECT_EQ(ByKey(configuration(), "").at("alignment"), "4KiB from COMMPOOL_CONF alignment:4K");
}

}  // namespace
}  // namespace commpool::internal::testing
