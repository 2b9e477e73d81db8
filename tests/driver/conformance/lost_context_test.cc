// Access to memory without permission. A program of its own, because on hardware it may cost the context.
#include "src/library/driver/diagnosis.h"
#include "tests/driver/conformance/conformance_fixture.h"

namespace commpool::internal::testing {
namespace {

class LostContext : public DriverTest {};

TEST_F(LostContext, MemoryWithoutAccessIsNotCopied) {
  const CudaDriver& cuda = driver().cuda;
  PrimaryContext context = PrimaryContext::Retain(driver(), 0).value();
  ContextGuard current(driver(), context);
  const CUmemLocation location = DeviceLocation(0);
  MappedMemory mapped(driver(), location, GranularityAt(driver(), location), std::nullopt);
  std::vector<uint8_t> values(4096);
  const CUresult result = cuda.cuMemcpyDtoH(values.data(), mapped.address(), values.size());
  EXPECT_NE(result, CUDA_SUCCESS);
  EXPECT_EQ(IsSticky(result), cuda.cuCtxSynchronize() != CUDA_SUCCESS) << result;
}

}  // namespace
}  // namespace commpool::internal::testing
