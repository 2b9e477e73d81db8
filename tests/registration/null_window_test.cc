// A machine where NCCL accepts a window's registration and makes no window.
#include <cstdlib>

#include "tests/registration/symmetric_fixture.h"

namespace commpool::internal::testing {
namespace {

[[maybe_unused]] const int kWithoutWindows = setenv("COMMPOOL_EMULATOR", "nccl=2.30.7,windows=no", 1);

class NullWindows : public SymmetricTest {};

TEST_F(NullWindows, AreNotSupportedOnAllAndNothingIsKept) {
  ExpectOk(Create());
  const Statuses statuses = Reserve(2 * kMiB);
  ExpectFailure(statuses, StatusCode::kNotSupported, "registering a segment of 2 MiB failed on rank 0: NCCL 2.30.7");
  ExpectFailure(statuses, StatusCode::kNotSupported, "made no window");
  EXPECT_EQ(ReservedBytes(0), 0u);
  EXPECT_EQ(RegisteredSegments(last()), 0u);
}

}  // namespace
}  // namespace commpool::internal::testing
