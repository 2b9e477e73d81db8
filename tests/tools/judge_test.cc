#include <gtest/gtest.h>

#include "tools/cli/allreduce.h"
#include "tools/common/command.h"

namespace commpool::cli {
namespace {

AllReduceRow Row(UsedRegistration used, bool could_use_local = true, long wrong = 0) {
  AllReduceRow row;
  row.used = used;
  row.could_use_local = could_use_local;
  row.wrong = wrong;
  return row;
}

AllReduceOptions Asked(UsedRegistration asked, Backing backing = Backing::kVmm) {
  AllReduceOptions options;
  options.asked = asked;
  options.backing = backing;
  return options;
}

TEST(Judge, AWrongElementGoesBeforeEverything) {
  EXPECT_EQ(Judge(Asked(UsedRegistration::kWindow), {Row(UsedRegistration::kNone, true, 1)}), kWrongResult);
}

TEST(Judge, EveryRowMustUseTheWindow) {
  const std::vector<AllReduceRow> rows = {Row(UsedRegistration::kWindow), Row(UsedRegistration::kNone)};
  EXPECT_EQ(Judge(Asked(UsedRegistration::kWindow), rows), kNotAsAsked);
  EXPECT_EQ(Judge(Asked(UsedRegistration::kWindow), {Row(UsedRegistration::kWindow)}), kSuccess);
}

TEST(Judge, OneRowThatUsesTheLocalRegistrationIsEnough) {
  const std::vector<AllReduceRow> rows = {Row(UsedRegistration::kNone), Row(UsedRegistration::kLocal)};
  EXPECT_EQ(Judge(Asked(UsedRegistration::kLocal), rows), kSuccess);
}

TEST(Judge, LocalUnusedWhereItCouldBeUsedIsNotAsAsked) {
  EXPECT_EQ(Judge(Asked(UsedRegistration::kLocal), {Row(UsedRegistration::kNone, true)}), kNotAsAsked);
  EXPECT_EQ(Judge(Asked(UsedRegistration::kLocal), {Row(UsedRegistration::kNone, false)}), kSuccess);
}

TEST(Judge, NcclCannotUseALocalRegistrationOfCudaMallocMemory) {
  EXPECT_EQ(Judge(Asked(UsedRegistration::kLocal, Backing::kCuda), {Row(UsedRegistration::kNone)}), kSuccess);
}

}  // namespace
}  // namespace commpool::cli
