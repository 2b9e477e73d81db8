// Multicast on a machine whose GPUs do not all reach each other.

#include "tests/emulator/cuda/machine_fixture.h"

namespace commpool::internal::testing {
namespace {

class Islands : public MachineTest {
 protected:
  static void SetUpTestSuite() { DeclareMachine("machine=islands"); }
};

TEST_F(Islands, HaveNoMulticastGroupAcrossThem) {
  CUmulticastObjectProp properties = {};
  properties.numDevices = 3;
  properties.size = kUnit;
  const CUmemGenericAllocationHandle object = Get(COMMPOOL_EXTENSION(cuMulticastCreate), &properties);
  EXPECT_EQ(COMMPOOL_EXTENSION(cuMulticastAddDevice)(object, 3), CUDA_SUCCESS);
  EXPECT_EQ(COMMPOOL_EXTENSION(cuMulticastAddDevice)(object, 4), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(COMMPOOL_EXTENSION(cuMulticastAddDevice)(object, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuMemRelease(object), CUDA_SUCCESS);
}

}  // namespace
}  // namespace commpool::internal::testing
