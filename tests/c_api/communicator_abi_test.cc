// NCCL's own memory of a communicator through the C ABI and the C++ skin, with an NCCL that cannot give it back.
#include <gtest/gtest.h>

#include <string>

#include "commpool/device.h"

namespace {

// The emulator's default poses as 2.28.9, which must not be called with this.
ncclComm* const kAny = reinterpret_cast<ncclComm*>(uintptr_t{64});

void ExpectOlder(const commpool::Status& status) {
  EXPECT_EQ(status.code(), commpool::StatusCode::kNotSupported);
  EXPECT_NE(status.message().find("communicators that sleep need NCCL 2.29.7; "), std::string::npos)
      << status.message();
  EXPECT_NE(status.message().find(" is 2.28.9"), std::string::npos) << status.message();
}

TEST(CommunicatorAbi, SaysThatNcclIsOlder) {
  ExpectOlder(commpool::sleep_communicator(kAny));
  ExpectOlder(commpool::wake_communicator(kAny));
  ExpectOlder(commpool::communicator_memory(kAny).status());
}

TEST(CommunicatorAbi, RefusesNull) {
  EXPECT_EQ(commpool_communicator_sleep(nullptr, 1000), COMMPOOL_INVALID_ARGUMENT);
  EXPECT_EQ(commpool_communicator_wake(nullptr), COMMPOOL_INVALID_ARGUMENT);
  EXPECT_EQ(commpool_communicator_memory(nullptr, nullptr, nullptr, nullptr), COMMPOOL_INVALID_ARGUMENT);
}

}  // namespace
