// An NCCL without windows.
#include <cstdlib>

#include "tests/registration/registration_fixture.h"
#include "tests/registration/symmetric_fixture.h"

namespace commpool::internal::testing {
namespace {

[[maybe_unused]] const int kOld = setenv("COMMPOOL_EMULATOR", "nccl=2.19.3", 1);

class OldNccl : public RegistrationTest {};

TEST_F(OldNccl, RefusesWindowsAndNamesBothVersions) {
  const Communicator communicator = Connect();
  const SegmentToRegister segment = MakeSegment(0);
  UnfinishedRange none = nullptr;
  const Status status = RegisterRange(driver(), communicator, RegistrationKind::kWindow, segment.address, segment.bytes,
                                      kDeadlineMs, none)
                            .status();
  ExpectFailure(status, StatusCode::kNotSupported, "2.27");
  ExpectFailure(status, StatusCode::kNotSupported, "2.19.3");
}

TEST_F(OldNccl, RegistersLocally) {
  WindowBook windows;
  RegistrationSet set(driver(), RegistrationKind::kLocal, kDeadlineMs, windows);
  const Communicator communicator = Connect();
  ExpectOk({set.Add(communicator, {MakeSegment(0)})});
  EXPECT_EQ(set.registrations(), 1u);
  ExpectOk({set.RemoveAll()});
}

TEST_F(OldNccl, MakesNoSymmetricPool) {
  RankGroup group(2);
  Runtime runtime(shared_driver());
  const Statuses statuses = group.Run([&](Rank& rank) {
    PoolConfiguration configuration;
    configuration.backing.placement.device = rank.number;
    configuration.home = rank.communicator;
    return runtime.CreatePool(configuration).status();
  });
  ExpectFailure(statuses, StatusCode::kNotSupported, "rank 0 cannot create: ");
  ExpectFailure(statuses, StatusCode::kNotSupported, "2.19.3");
}

}  // namespace
}  // namespace commpool::internal::testing
