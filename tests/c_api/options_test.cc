// Each bad option is refused by its name, with its value.
#include "src/library/c_api/options.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "src/library/base/bytes.h"

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
  Result<PoolConfiguration> configuration = ParsePoolOptions(options);
  ASSERT_TRUE(configuration.ok()) << configuration.status().message();
  EXPECT_FALSE(configuration->symmetric());
  EXPECT_EQ(configuration->name, "pool") << "a null name is the default";
  EXPECT_EQ(configuration->backing.kind, BackingKind::kVmm);
  EXPECT_EQ(configuration->backing.placement.device, 0);
  EXPECT_EQ(configuration->backing.placement.kind, Placement::Kind::kDevice);
  EXPECT_TRUE(configuration->peers.empty());
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
  Result<PoolConfiguration> configuration = ParsePoolOptions(options);
  ASSERT_TRUE(configuration.ok()) << configuration.status().message();
  EXPECT_TRUE(configuration->symmetric());
  EXPECT_EQ(configuration->name, "gradients");
  EXPECT_EQ(configuration->backing.kind, BackingKind::kNccl);
  EXPECT_EQ(configuration->backing.placement.device, 2);
  EXPECT_EQ(configuration->home, SomeCommunicator());
  EXPECT_EQ(configuration->frees, engine::FreeOrder::kOrdered);
  EXPECT_EQ(configuration->all_gather_context, &options);
  EXPECT_EQ(configuration->deadline_ms, 5u);
  EXPECT_EQ(configuration->peers, (std::vector<int>{1, 3}));
  EXPECT_EQ(configuration->alignment_bytes, 4096u);
  EXPECT_EQ(configuration->segment_bytes, 64 * kMiB);
  EXPECT_EQ(configuration->limit_bytes, 1 * kGiB);
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
  Result<PoolConfiguration> configuration = ParsePoolOptions(options);
  ASSERT_FALSE(configuration.ok());
  EXPECT_EQ(configuration.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(configuration.status().message().find(GetParam().named), std::string::npos)
      << configuration.status().message();
}

using Options = commpool_pool_options;

INSTANTIATE_TEST_SUITE_P(
    All, BadPoolOption,
    ::testing::Values(BadOption{"struct_bytes is 0", [](Options& options) { options.struct_bytes = 0; }},
                      BadOption{"struct_bytes is 152", [](Options& options) { options.struct_bytes = 152; }},
                      BadOption{"struct_bytes is 4104", [](Options& options) { options.struct_bytes = 4104; }},
                      BadOption{"backing 99", [](Options& options) { Write(options.backing, 99); }},
                      BadOption{"location 7", [](Options& options) { Write(options.location, 7); }},
                      BadOption{"device -1", [](Options& options) { options.device = -1; }},
                      BadOption{"numa_node -2", [](Options& options) { options.numa_node = -2; }},
                      BadOption{"frees 2", [](Options& options) { Write(options.frees, 2); }},
                      BadOption{"grants 2", [](Options& options) { Write(options.grants, 2); }},
                      BadOption{"replays 2", [](Options& options) { Write(options.replays, 2); }},
                      BadOption{"replays ONE_AT_A_TIME excludes symmetric_across",
                                [](Options& options) {
                                  options.symmetric_across = SomeCommunicator();
                                  options.replays = COMMPOOL_REPLAYS_ONE_AT_A_TIME;
                                }},
                      BadOption{"user_allocate is for the USER backing",
                                [](Options& options) {
                                  options.user_allocate = [](ptrdiff_t, int, CUstream_st*, void*) -> void* {
                                    return nullptr;
                                  };
                                }},
                      BadOption{"on_lost_rank is for pools with symmetric_across",
                                [](Options& options) { options.on_lost_rank = [](int, int, void*) {}; }},
                      BadOption{"alignment_bytes 0", [](Options& options) { options.alignment_bytes = 0; }},
                      BadOption{"alignment_bytes 256", [](Options& options) { options.alignment_bytes = 256; }},
                      BadOption{"alignment_bytes 1000", [](Options& options) { options.alignment_bytes = 1000; }},
                      BadOption{"limit_bytes is 0", [](Options& options) { options.limit_bytes = 0; }},
                      BadOption{"deadline_ms is 0", [](Options& options) { options.deadline_ms = 0; }},
                      BadOption{"peers is null", [](Options& options) { options.peer_count = 1; }},
                      BadOption{"all_gather", [](Options& options) { options.all_gather = GatherNothing; }},
                      BadOption{"segment_bytes 2 MiB is more than limit_bytes 1 MiB", [](Options& options) {
                                  options.segment_bytes = 2 * kMiB;
                                  options.limit_bytes = 1 * kMiB;
                                }}));

}  // namespace
}  // namespace commpool::internal
