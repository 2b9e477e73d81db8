#include "src/interpose/audit/packed_call.h"

#include <gtest/gtest.h>

#include <cstddef>

#include "src/interpose/audit/cupti_abi.h"
#include "src/interpose/audit/seen_set.h"
#if __has_include(<cupti_callbacks.h>)
#include <cupti_callbacks.h>
#endif

namespace commpool::audit {
namespace {

TEST(PackedCall, ReadsMembersWhereTheCompilerPutsThem) {
  const struct {
    unsigned first;
    const char* second;
    unsigned char third;
    size_t fourth;
    CUipcMemHandle fifth;
    unsigned sixth;
  } members = {1, "two", 3, 4, {{5}}, 6};
  StructReader reader(&members);
  EXPECT_EQ(reader.Next<unsigned>(), 1u);
  EXPECT_STREQ(reader.Next<const char*>(), "two");
  EXPECT_EQ(reader.Next<unsigned char>(), 3);
  EXPECT_EQ(reader.Next<size_t>(), 4u);
  EXPECT_EQ(reader.Next<CUipcMemHandle>().reserved[0], 5);
  EXPECT_EQ(reader.Next<unsigned>(), 6u);
}

TEST(CuptiAbi, IsThatOfTheHeader) {
#if __has_include(<cupti_callbacks.h>)
  EXPECT_EQ(sizeof(cupti::CallbackData), sizeof(CUpti_CallbackData));
  EXPECT_EQ(offsetof(cupti::CallbackData, parameters), offsetof(CUpti_CallbackData, functionParams));
  EXPECT_EQ(offsetof(cupti::CallbackData, result), offsetof(CUpti_CallbackData, functionReturnValue));
  EXPECT_EQ(offsetof(cupti::CallbackData, correlation), offsetof(CUpti_CallbackData, correlationData));
  EXPECT_EQ(cupti::kEnter, static_cast<int>(CUPTI_API_ENTER));
  EXPECT_EQ(cupti::kExit, static_cast<int>(CUPTI_API_EXIT));
  EXPECT_EQ(cupti::kDriverDomain, static_cast<int>(CUPTI_CB_DOMAIN_DRIVER_API));
  EXPECT_EQ(cupti::kMultipleSubscribers, static_cast<int>(CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED));
#else
  GTEST_SKIP() << "there is no cupti_callbacks.h";
#endif
}

TEST(SeenSet, HasWhatWasAdded) {
  const auto set = std::make_unique<SeenSet>();
  const int one = 0;
  const int other = 0;
  EXPECT_FALSE(set->Has(&one));
  set->Add(&one);
  EXPECT_TRUE(set->Has(&one));
  EXPECT_FALSE(set->Has(&other));
}

TEST(SeenSet, EverythingCountsAsSeenOnceThereIsNoRoom) {
  const auto set = std::make_unique<SeenSet>();
  std::vector<char> places(1 << 18);
  for (const char& place : places) set->Add(&place);
  for (const char& place : places) ASSERT_TRUE(set->Has(&place));
}

}  // namespace
}  // namespace commpool::audit
