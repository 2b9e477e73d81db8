// The allowed texts of COMMPOOL_CONF, and which of several settings for one option counts.
#include "src/library/pool/settings/settings.h"

#include <gtest/gtest.h>

#include <locale>
#include <string>
#include <vector>

#include "src/library/base/bytes.h"
#include "tests/base/expect_status.h"

namespace commpool::internal {
namespace {

ncclComm_t SomeCommunicator() {
  static int object;
  return reinterpret_cast<ncclComm_t>(&object);
}

PoolConfiguration Named(const char* name) {
  PoolConfiguration pool;
  pool.name = name;
  return pool;
}

PoolConfiguration Symmetric() {
  PoolConfiguration pool = Named("windows");
  pool.home = SomeCommunicator();
  return pool;
}

PoolConfiguration Small() {
  PoolConfiguration pool = Named("small");
  pool.limit_bytes = 4 * kMiB;
  pool.given = COMMPOOL_OPTION_LIMIT;
  return pool;
}

// The pool with the text's settings.
PoolConfiguration With(const std::string& text, PoolConfiguration pool = Named("gradients")) {
  const Result<Settings> settings = Settings::Parse(text);
  EXPECT_TRUE(settings.ok()) << settings.status().message();
  if (!settings.ok()) return pool;
  ExpectOk(settings->ApplyTo(pool));
  return pool;
}

// A comma in numbers, as in a German program.
class DecimalComma : public std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
};

void ExpectWrong(const std::string& text, const std::vector<const char*>& parts) {
  const Status refused = Settings::Parse(text).status();
  for (const char* const part : parts) {
    SCOPED_TRACE(text + " has an error that says " + part);
    ExpectFailure(refused, StatusCode::kInvalidArgument, part);
  }
}

TEST(Settings, SetEachOptionOfAPool) {
  const PoolConfiguration pool = With(
      "backing:cuda,moves:under_pressure,limit:2GiB,segment:64MiB,granularity:4MiB,alignment:4K,release_threshold:1MiB,"
      "deadline:5s,nmalloc:4,garbage_collection_threshold:0.75");
  EXPECT_EQ(pool.backing.kind, BackingKind::kCuda);
  EXPECT_EQ(pool.moves, Moves::kUnderPressure);
  EXPECT_EQ(pool.limit_bytes, 2 * kGiB);
  EXPECT_EQ(pool.segment_bytes, 64 * kMiB);
  EXPECT_EQ(pool.granularity_bytes, 4 * kMiB);
  EXPECT_EQ(pool.alignment_bytes, 4096u);
  EXPECT_EQ(pool.release_threshold_bytes, kMiB);
  EXPECT_EQ(pool.deadline_ms, 5000u);
  EXPECT_EQ(pool.attempts, 4u);
  EXPECT_EQ(pool.collection_share, 0.75);
  EXPECT_EQ(With("mode:expandable").mode, Mode::kExpandable);
  EXPECT_EQ(With("grants:read").backing.grants, Grants::kRead);
  EXPECT_EQ(With("grants:read_write").backing.grants, Grants::kReadWrite);
}

TEST(Settings, GrantReadingAloneToPoolsThatCanPromiseIt) {
  ExpectWrong("grants:write", {"it may be read_write or read"});
  EXPECT_EQ(With("backing:nccl,grants:read").backing.grants, Grants::kReadWrite) << "a general setting passes it by";
  PoolConfiguration in_code = Named("in code");
  in_code.backing.grants = Grants::kRead;
  in_code.given = COMMPOOL_OPTION_GRANTS;
  EXPECT_TRUE(Settings::Parse("backing:nccl").value().ApplyTo(in_code).ok());
  EXPECT_EQ(in_code.backing.kind, BackingKind::kVmm) << "the program's word counts";
  PoolConfiguration weights = Named("weights");
  const Status status = Settings::Parse("backing:nccl,weights.grants:read").value().ApplyTo(weights);
  EXPECT_NE(status.message().find("ncclMemAlloc grants every reachable device"), std::string::npos) << status.message();
}

TEST(Settings, DivideADeviceByBudgets) {
  const Settings settings = Settings::Parse("kv.budget_limit:2GiB,spare.budget_limit:none,pages.budget:kv").value();
  EXPECT_EQ(settings.device_limit().budgets,
            (std::map<std::string, uint64_t>{{"kv", 2 * kGiB}, {"spare", UINT64_MAX}}));
  EXPECT_EQ(With("budget:kv,pages.budget:none", Named("pages")).budget, "");
  EXPECT_EQ(With("budget:kv").budget, "kv");
  PoolConfiguration host = Named("host");
  host.backing.placement = {.kind = Placement::Kind::kHostNuma, .device = 0, .numa_node = 0};
  EXPECT_EQ(With("budget:kv", host).budget, "") << "a general setting passes it by";
  ExpectWrong("budget_limit:2GiB", {"write NAME.budget_limit:2GiB"});
}

TEST(Settings, MayHaveTheGreatestAndTheLeastValues) {
  EXPECT_EQ(With("segment:4MiB", Small()).segment_bytes, 4 * kMiB) << "the whole pool in one piece";
  EXPECT_EQ(With("deadline:18446744073709551s").deadline_ms, 18446744073709551000u);
  EXPECT_EQ(With("nmalloc:100").attempts, 100u);
  EXPECT_EQ(With("nmalloc:1,garbage_collection_threshold:1").attempts, 1u);
  EXPECT_EQ(With("segment:131072GiB").segment_bytes, 131072 * kGiB) << "what a process can address";
  ExpectWrong("segment:131073GiB", {"more than a device can address"});
}

TEST(Settings, HaveAPointInEveryLocale) {
  const std::locale before = std::locale::global(std::locale(std::locale(), new DecimalComma));
  EXPECT_EQ(With("garbage_collection_threshold:0.75").collection_share, 0.75);
  std::locale::global(before);
}

TEST(Settings, WithoutAnEntryChangeNothing) {
  for (const char* const text : {"", "  ", ",", "other.limit:1GiB"}) {
    const PoolConfiguration pool = With(text);
    EXPECT_EQ(pool.limit_bytes, UINT64_MAX) << text;
    EXPECT_TRUE(pool.sources.empty()) << text;
  }
}

TEST(Settings, MayHaveSpacesAndACommaAtTheEnd) {
  const PoolConfiguration pool = With(" limit : 1 GiB , segment:auto, ");
  EXPECT_EQ(pool.limit_bytes, kGiB);
  EXPECT_EQ(pool.segment_bytes, 0u);
}

TEST(Settings, OfAPoolCountBeforeGeneralOnesInAnyOrder) {
  for (const char* const text : {"limit:1GiB,gradients.limit:2GiB", "gradients.limit:2GiB,limit:1GiB"}) {
    EXPECT_EQ(With(text).limit_bytes, 2 * kGiB) << text;
    EXPECT_EQ(With(text, Named("activations")).limit_bytes, kGiB) << text;
  }
  EXPECT_EQ(With("a.b.limit:1GiB", Named("a.b")).limit_bytes, kGiB) << "a pool's name may have dots";
}

TEST(Settings, YieldToTheCode) {
  PoolConfiguration in_code = Named("gradients");
  in_code.limit_bytes = 4 * kGiB;
  in_code.given = COMMPOOL_OPTION_LIMIT | COMMPOOL_OPTION_MODE;  // gives the default mode on purpose
  const PoolConfiguration pool = With("gradients.limit:2GiB,mode:expandable,deadline:1s", in_code);
  EXPECT_EQ(pool.limit_bytes, 4 * kGiB);
  EXPECT_EQ(pool.mode, Mode::kFixed);
  EXPECT_EQ(pool.deadline_ms, 1000u) << "what the code leaves open is set";
}

TEST(Settings, SkipPoolsThatCannotHaveThem) {
  const PoolConfiguration pool = With("mode:expandable,backing:cuda,alignment:1K", Symmetric());
  EXPECT_EQ(pool.mode, Mode::kFixed);
  EXPECT_EQ(pool.backing.kind, BackingKind::kVmm);
  EXPECT_EQ(pool.alignment_bytes, 1024u);
  EXPECT_EQ(With("segment:64MiB", Small()).segment_bytes, 0u);
  PoolConfiguration host = Named("host");
  host.backing.placement.kind = Placement::Kind::kHostNuma;
  EXPECT_EQ(With("backing:cuda", host).backing.kind, BackingKind::kVmm);
  PoolConfiguration pinned = Named("pinned");
  pinned.backing.kind = BackingKind::kPinned;
  EXPECT_EQ(With("alignment:8KiB", pinned).alignment_bytes, 512u);
}

TEST(Settings, ThatNameAPoolWhichCannotHaveThemAreErrors) {
  PoolConfiguration symmetric = Symmetric();
  ExpectFailure(Settings::Parse("windows.mode:expandable").value().ApplyTo(symmetric), StatusCode::kInvalidArgument,
                "COMMPOOL_CONF says windows.mode:expandable: ");
  EXPECT_EQ(symmetric.mode, Mode::kFixed);
}

TEST(Settings, AreNamedWhereTheyDoNotFitTheCode) {
  PoolConfiguration pool = Named("gradients");
  pool.segment_bytes = 8 * kMiB;
  pool.given = COMMPOOL_OPTION_SEGMENT;
  ExpectFailure(Settings::Parse("limit:4MiB").value().ApplyTo(pool), StatusCode::kInvalidArgument,
                "segment_bytes 8 MiB is more than limit_bytes 4 MiB; of its options COMMPOOL_CONF set limit:4MiB");
}

TEST(Settings, ThatNobodyKnowsAreRefusedWithTheNearestAndAllKnownOnes) {
  ExpectWrong("limt:2GiB", {"limt:2GiB", "there is no setting \"limt\"", "the nearest is limit,", "backing",
                            "release_threshold", "device_limit", "per_process_memory_fraction", "headroom",
                            "expandable_segments", "heuristic", "pooled"});
  const std::string told = Settings::Parse("limt").status().message();
  EXPECT_EQ(told.find("nmalloc"), told.rfind("nmalloc")) << "each once: " << told;
  ExpectWrong("cachingallocator", {"the nearest is caching_allocator,"});
  ExpectWrong("gradients.mod:fixed", {"the nearest is mode,"});
}

struct WrongValue {
  const char* text;
  const char* told;
};

void PrintTo(const WrongValue& wrong, std::ostream* stream) { *stream << wrong.text; }

class AWrongValue : public ::testing::TestWithParam<WrongValue> {};

TEST_P(AWrongValue, IsRefusedWithTheAllowedValues) { ExpectWrong(GetParam().text, {GetParam().text, GetParam().told}); }

INSTANTIATE_TEST_SUITE_P(
    All, AWrongValue,
    ::testing::Values(
        WrongValue{"backing:user", "it may be vmm, nccl, cuda"}, WrongValue{"mode:flexible", "fixed or expandable"},
        WrongValue{"moves:never", "eager or under_pressure"}, WrongValue{"limit:plenty", "is not a size"},
        WrongValue{"limit:0", "the pool could hold nothing"}, WrongValue{"segment:-1", "is not a size"},
        WrongValue{"alignment:1000", "not a power of two"}, WrongValue{"alignment:4MiB", "more than 2 MiB"},
        WrongValue{"granularity:3MiB", "a power of two"}, WrongValue{"deadline:soon", "a time such as 60s"},
        WrongValue{"deadline:0", "deadline_ms is 0"}, WrongValue{"deadline:99999999999999999s", "a time such as 60s"},
        WrongValue{"nmalloc:0", "from 1 to 100"}, WrongValue{"nmalloc:101", "from 1 to 100"},
        WrongValue{"garbage_collection_threshold:80", "such as 0.8"},
        WrongValue{"garbage_collection_threshold:0", "such as 0.8"},
        WrongValue{"per_process_memory_fraction:half", "such as 0.8"},
        WrongValue{"gradients.device_limit:1GiB", "names no pool"},
        WrongValue{"gradients.headroom:1GiB", "names no pool"}, WrongValue{"strategy:fast", "heuristic, nmalloc"},
        WrongValue{"limit", "write limit:VALUE"}, WrongValue{"limit:", "write limit:VALUE"},
        WrongValue{".limit:1GiB", "there is no setting"}, WrongValue{"expandable_segments:yes", "True or False"}));

TEST(Settings, ThatAreGivenTwiceAreRefused) {
  ExpectWrong("limit:1GiB,limit:2GiB", {"limit:2GiB", "so does limit:1GiB"});
  ExpectWrong("mode:fixed,expandable_segments:True", {"expandable_segments:True", "so does mode:fixed"});
  ExpectWrong("pooled,strategy:heuristic", {"so does pooled"});
}

TEST(Settings, OfPyTorchAreTakenWhereTheyMeanTheSame) {
  EXPECT_EQ(With("expandable_segments:True").mode, Mode::kExpandable);
  EXPECT_EQ(With("expandable_segments:False").mode, Mode::kFixed);
  EXPECT_EQ(With("garbage_collection_threshold:0.8").collection_share, 0.8);
  EXPECT_EQ(Settings::Parse("per_process_memory_fraction:0.5").value().device_limit().For(10 * kGiB), 5 * kGiB);
  EXPECT_TRUE(With("release_lock_on_cudamalloc:True").sources.empty()) << "it is so always";
  ExpectWrong("release_lock_on_cudamalloc:False", {"always"});
}

TEST(Settings, OfPyTorchThatHaveNoEqualAreRefusedWithOurs) {
  ExpectWrong("max_split_size_mb:128", {"PyTorch's alone", "mode:expandable"});
  ExpectWrong("roundup_power2_divisions:[256:1,512:2,>:8]",
              {"roundup_power2_divisions:[256:1,512:2,>:8]: this", "alignment:BYTES"});
  ExpectWrong("roundup_power2_divisions:[256:1,512:2", {"alignment:BYTES"});
  ExpectWrong("backend:cudaMallocAsync", {"backing"});
  ExpectWrong("large_segment_size_mb:64", {"segment:BYTES"});
  ExpectWrong("pinned_use_background_threads:True", {"backing PINNED"});
}

TEST(Strategies, AreSeveralSettingsInOneWord) {
  const PoolConfiguration heuristic = With("heuristic");
  EXPECT_EQ(heuristic.mode, Mode::kExpandable);
  EXPECT_EQ(heuristic.moves, Moves::kUnderPressure);
  EXPECT_EQ(With("nmalloc").attempts, 3u);
  const PoolConfiguration caching = With("strategy:caching_allocator,release_threshold:1MiB");
  EXPECT_EQ(caching.mode, Mode::kFixed);
  EXPECT_EQ(caching.release_threshold_bytes, kMiB) << "a setting by name counts before a strategy";
  EXPECT_EQ(With("pooled").segment_bytes, 256 * kMiB);
}

TEST(Strategies, OfAPoolCountBeforeGeneralSettings) {
  const char* const text = "mode:expandable,segment:8MiB,gradients.pooled";
  EXPECT_EQ(With(text).mode, Mode::kFixed);
  EXPECT_EQ(With(text).segment_bytes, 256 * kMiB);
  EXPECT_EQ(With(text, Named("activations")).segment_bytes, 8 * kMiB);
}

TEST(Strategies, SkipPoolsThatCannotHaveThem) {
  EXPECT_EQ(With("windows.heuristic", Symmetric()).mode, Mode::kFixed);
  EXPECT_EQ(With("small.pooled", Small()).segment_bytes, 0u);
}

std::string LineOf(const std::vector<SettingLine>& lines, const std::string& pool, const std::string& key) {
  for (const SettingLine& line : lines) {
    if (line.pool == pool && line.key == key) return line.value + " from " + line.source;
  }
  return "no line";
}

TEST(Settings, AreListedWithTheirSources) {
  const auto lines = Settings::Parse("limit:3GiB,pooled,gradients.limit:512K,device_limit:8GiB").value().Describe();
  EXPECT_EQ(LineOf(lines, "", "limit"), "3GiB from COMMPOOL_CONF limit:3GiB");
  EXPECT_EQ(LineOf(lines, "", "segment"), "256MiB from COMMPOOL_CONF pooled");
  EXPECT_EQ(LineOf(lines, "", "strategy"), "pooled from COMMPOOL_CONF pooled");
  EXPECT_EQ(LineOf(lines, "", "device_limit"), "8GiB from COMMPOOL_CONF device_limit:8GiB");
  EXPECT_EQ(LineOf(lines, "", "deadline"), "60s from default");
  EXPECT_EQ(LineOf(lines, "", "per_process_memory_fraction"), "1 from default");
  EXPECT_EQ(LineOf(lines, "gradients", "limit"), "512K from COMMPOOL_CONF gradients.limit:512K");
}

TEST(Settings, OfAPoolAreListedWithTheirSources) {
  PoolConfiguration in_code = Named("gradients");
  in_code.limit_bytes = 4 * kGiB + 1;
  in_code.given = COMMPOOL_OPTION_LIMIT;
  const auto lines = DescribePool(With("gradients.alignment:4K,limit:1GiB", in_code));
  EXPECT_EQ(LineOf(lines, "gradients", "limit"), "4294967297 from code");
  EXPECT_EQ(LineOf(lines, "gradients", "alignment"), "4KiB from COMMPOOL_CONF gradients.alignment:4K");
  EXPECT_EQ(LineOf(lines, "gradients", "mode"), "fixed from default");
}

TEST(Settings, AreShownInTheFormInWhichTheyAreRead) {
  const PoolConfiguration pool = With("limit:1000,segment:auto,deadline:1500,alignment:8K,mode:expandable");
  std::string text;
  for (const SettingLine& line : DescribePool(pool)) text += line.key + ":" + line.value + ",";
  const PoolConfiguration again = With(text);
  for (const SettingRow& row : SettingRows()) EXPECT_EQ(row.show(again), row.show(pool)) << row.key;
}

TEST(ADeviceLimit, IsTheSmallerOfBytesAndShare) {
  const DeviceLimit limit = Settings::Parse("device_limit:6GiB,per_process_memory_fraction:0.5").value().device_limit();
  EXPECT_EQ(limit.For(10 * kGiB), 5 * kGiB);
  EXPECT_EQ(limit.For(20 * kGiB), 6 * kGiB);
  EXPECT_EQ(Settings().device_limit().For(kGiB), UINT64_MAX);
  EXPECT_EQ(Settings().device_limit().headroom, 0u);
  EXPECT_EQ(Settings::Parse("headroom:2GiB").value().device_limit().headroom, 2 * kGiB);
  EXPECT_EQ(Settings::Parse("headroom:none").value().device_limit().headroom, 0u);
}

}  // namespace
}  // namespace commpool::internal
