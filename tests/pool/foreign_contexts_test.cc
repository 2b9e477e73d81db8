// A default stream belongs to the context that is current. Of contexts that are no primary ones pools know nothing.
#include <atomic>
#include <memory>

#include "tests/pool/pool_fixture.h"

namespace commpool::internal::testing {
namespace {

// Such as cuCtxCreate and green contexts make: here only the driver's answers about what is current.
const auto kForeign = reinterpret_cast<CUcontext>(0x40);
std::atomic<bool> foreign_is_current{false};

CUresult GetCurrent(CUcontext* context) {
  if (!foreign_is_current) return SharedDriver()->cuda.cuCtxGetCurrent(context);
  *context = kForeign;
  return CUDA_SUCCESS;
}

CUresult SetCurrent(CUcontext context) {
  return context == kForeign ? CUDA_SUCCESS : SharedDriver()->cuda.cuCtxSetCurrent(context);
}

std::shared_ptr<const Driver> DriverWithForeignContext() {
  auto driver = std::make_shared<Driver>(*SharedDriver());
  driver->cuda.cuCtxGetCurrent = GetCurrent;
  driver->cuda.cuCtxSetCurrent = SetCurrent;
  return driver;
}

class ForeignContexts : public DriverTest {
 protected:
  ~ForeignContexts() override { foreign_is_current = false; }

  PrimaryContext context_ = PrimaryContext::Retain(driver(), 0).value();
  ContextGuard current_{driver(), context_};
  Runtime runtime_{DriverWithForeignContext()};
};

TEST_F(ForeignContexts, HaveNoDefaultStreamForAPool) {
  PoolConfiguration configuration;
  configuration.name = "primary";
  const PoolHandle pool = runtime_.CreatePool(std::move(configuration)).value();
  foreign_is_current = true;
  ExpectFailure(runtime_.AllocateFrom(pool, 4 * kMiB, nullptr).status(), StatusCode::kNotSupported,
                "not its primary context");
  foreign_is_current = false;
  const CUdeviceptr block = runtime_.AllocateFrom(pool, 4 * kMiB, nullptr).value();
  EXPECT_TRUE(runtime_.Free(block).ok());
  EXPECT_TRUE(runtime_.pools().Find(pool).value()->Trim(0).ok());
}

}  // namespace
}  // namespace commpool::internal::testing
