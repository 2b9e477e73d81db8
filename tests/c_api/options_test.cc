// Each bad option is refused by its name, with its value.
#include "src/library/c_api/options.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "src/library/base/bytes.h"
#include "tests/base/expect_status.h"

namespace commpool::internal {
namespace {

ncclComm_t SomeCommunicator() {
  static int object;
  return reinterpret_cast<ncclComm_t>(&object);
}

int GatherNothing(const void*, void*, size_t, void*) { return 0; }

commpool_pool_options Defaults() {
  commpool_pool_options options;
  commpool_pool_options_init(&options);
  return options;
}

TEST(PoolOptions, DefaultsAreAFixedPoolOnDeviceZero) {
  commpool_pool_options options = Defaults();
  options.name = nullptr;
  const PoolConfiguration configuration = ParsePoolOptions(options).value();
  EXPECT_FALSE(configuration.symmetric());
  EXPECT_EQ(configuration.name, "pool") << "a null name is the default";
  EXPECT_EQ(configuration.backing.kind, BackingKind::kVmm);
  EXPECT_EQ(configuration.backing.placement.device, 0);
  EXPECT_EQ(configuration.backing.placement.kind, Placement::Kind::kDevice);
  EXPECT_TRUE(configuration.peers.empty());
}

TEST(PoolOptions, ArriveAsTheyWereSet) {
  commpool_pool_options options = Defaults();
  const int peers[] = {1, 3};
  options.name = "gradients";
  options.device = 2;
  options.backing = COMMPOOL_BACKING_NCCL;
  options.symmetric_across = SomeCommunicator();
  options.frees = COMMPOOL_FREES_ORDERED;
  options.all_gather = GatherNothing;
  options.all_gather_context = &options;
  options.deadline_ms = 5;
  options.peers = peers;
  options.peer_count = 2;
  options.alignment_bytes = 4096;
  options.segment_bytes = 64 * kMiB;
  options.limit_bytes = 1 * kGiB;
  const PoolConfiguration configuration = ParsePoolOptions(options).value();
  EXPECT_TRUE(configuration.symmetric());
  EXPECT_EQ(configuration.name, "gradients");
  EXPECT_EQ(configuration.backing.kind, BackingKind::kNccl);
  EXPECT_EQ(configuration.backing.placement.device, 2);
  EXPECT_EQ(configuration.home, SomeCommunicator());
  EXPECT_EQ(configuration.frees, engine::FreeOrder::kOrdered);
  EXPECT_EQ(configuration.all_gather_context, &options);
  EXPECT_EQ(configuration.deadline_ms, 5u);
  EXPECT_EQ(configuration.peers, (std::vector<int>{1, 3}));
  EXPECT_EQ(configuration.alignment_bytes, 4096u);
  EXPECT_EQ(configuration.segment_bytes, 64 * kMiB);
  EXPECT_EQ(configuration.limit_bytes, 1 * kGiB);
}

// A C program can write any number into an enumeration; a C++ cast may not.
template <typename Enumeration>
void Write(Enumeration& option, int value) {
  static_assert(sizeof(option) == sizeof(value));
  std::memcpy(&option, &value, sizeof(value));
}

struct BadOption {
  const char* named;  // must appear in the message
  std::function<void(commpool_pool_options&)> set;
};

void PrintTo(const BadOption& option, std::ostream* stream) { *stream << option.named; }

class BadPoolOption : public ::testing::TestWithParam<BadOption> {};

TEST_P(BadPoolOption, IsRefusedByName) {
  commpool_pool_options options = Defaults();
  GetParam().set(options);
  ExpectFailure(ParsePoolOptions(options).status(), StatusCode::kInvalidArgument, GetParam().named);
}

using Options = commpool_pool_options;

const BadOption kBad[] = {
    {"struct_bytes is 0", [](Options& options) { options.struct_bytes = 0; }},
    {"struct_bytes is 152", [](Options& options) { options.struct_bytes = 152; }},
    {"struct_bytes is 4104", [](Options& options) { options.struct_bytes = 4104; }},
    {"backing 99", [](Options& options) { Write(options.backing, 99); }},
    {"location 7", [](Options& options) { Write(options.location, 7); }},
    {"device -1", [](Options& options) { options.device = -1; }},
    {"numa_node -2", [](Options& options) { options.numa_node = -2; }},
    {"frees 2", [](Options& options) { Write(options.frees, 2); }},
    {"grants 2", [](Options& options) { Write(options.grants, 2); }},
    {"replays 2", [](Options& options) { Write(options.replays, 2); }},
    {"replays ONE_AT_A_TIME excludes symmetric_across",
     [](Options& options) {
       options.symmetric_across = SomeCommunicator();
       options.replays = COMMPOOL_REPLAYS_ONE_AT_A_TIME;
     }},
    {"user_allocate is for the USER backing",
     [](Options& options) {
       options.user_allocate = [](ptrdiff_t, int, CUstream_st*, void*) -> void* { return nullptr; };
     }},
    {"on_lost_rank is for pools with symmetric_across",
     [](Options& options) { options.on_lost_rank = [](int, int, void*) {}; }},
    {"alignment_bytes 0", [](Options& options) { options.alignment_bytes = 0; }},
    {"alignment_bytes 256", [](Options& options) { options.alignment_bytes = 256; }},
    {"alignment_bytes 1000", [](Options& options) { options.alignment_bytes = 1000; }},
    {"limit_bytes is 0", [](Options& options) { options.limit_bytes = 0; }},
    {"deadline_ms is 0", [](Options& options) { options.deadline_ms = 0; }},
    {"peers is null", [](Options& options) { options.peer_count = 1; }},
    {"all_gather", [](Options& options) { options.all_gather = GatherNothing; }},
    {"segment_bytes 2 MiB is more than limit_bytes 1 MiB",
     [](Options& options) {
       options.segment_bytes = 2 * kMiB;
       options.limit_bytes = 1 * kMiB;
     }},
};

INSTANTIATE_TEST_SUITE_P(All, BadPoolOption, ::testing::ValuesIn(kBad));

}  // namespace
}  // namespace commpool::internal
