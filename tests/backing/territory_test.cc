// A territory's addresses and the pages in them, without a pool.
#include "src/backing/territory.h"

#include <utility>

#include "tests/backing/backing_fixture.h"

namespace commpool::internal::testing {
namespace {

class Territories : public BackingTest {
 protected:
  Territories() : context_(PrimaryContext::Retain(driver(), 0).value()), current_(driver(), context_) {}

  PhysicalMemory MakePage() { return backing_->pages()->MakePage(page_bytes_).value(); }

  PrimaryContext context_;
  ContextGuard current_;
  const std::unique_ptr<Backing> backing_ = Make({.kind = BackingKind::kVmm});
  const uint64_t page_bytes_ = backing_->granularity();
  const std::unique_ptr<Territory> territory_ = Territory::Reserve(*backing_, 8 * page_bytes_).value();
};

TEST_F(Territories, ReleaseEveryPageWithTheirAddresses) {
  for (const uint64_t page : {0, 3, 5}) {
    ASSERT_TRUE(territory_->Map(MakePage(), territory_->address() + page * page_bytes_).ok());
  }
  const CUdeviceptr address = territory_->address();
  ASSERT_TRUE(territory_->Release().ok());
  // Nothing is left there: not a page, and not the addresses.
  for (const uint64_t page : {0, 3, 5}) {
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_NE(cuda().cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(address + page * page_bytes_)),
              CUDA_SUCCESS);
  }
  EXPECT_TRUE(territory_->Release().ok()) << "a second time there is nothing to do";
}

TEST_F(Territories, HandAPageOverToAnotherPlace) {
  const CUdeviceptr from = territory_->address();
  const CUdeviceptr to = from + 4 * page_bytes_;
  ASSERT_TRUE(territory_->Map(MakePage(), from).ok());
  Result<PhysicalMemory> page = territory_->Unmap(from);
  ASSERT_TRUE(page.ok());
  ASSERT_TRUE(territory_->Map(std::move(*page), to).ok());
  EXPECT_TRUE(territory_->Open(to, page_bytes_).ok());
  EXPECT_TRUE(territory_->Drop(to, page_bytes_).ok());
}

TEST_F(Territories, WakePieceByPiece) {
  for (const uint64_t page : {0, 1, 3, 5}) {
    const CUdeviceptr at = territory_->address() + page * page_bytes_;
    ASSERT_TRUE(territory_->Map(MakePage(), at).ok());
    ASSERT_TRUE(territory_->Open(at, page_bytes_).ok());
  }
  ASSERT_TRUE(territory_->UnmapAll().ok());
  territory_->ReleaseUnmapped();
  ASSERT_EQ(territory_->missing_bytes(), 4 * page_bytes_);
  const auto wake = [&](CUdeviceptr from, uint64_t at_least) {
    return territory_->WakeFrom(from, at_least, *backing_->pages(), {}).value() - territory_->address();
  };
  EXPECT_EQ(wake(territory_->address(), 1), page_bytes_);
  EXPECT_EQ(territory_->missing_bytes(), 3 * page_bytes_);
  EXPECT_EQ(cuda().cuMemsetD8Async(territory_->address(), 1, page_bytes_, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(wake(territory_->address() + page_bytes_, page_bytes_ + 1), 5 * page_bytes_) << "the next page";
  EXPECT_EQ(territory_->missing_bytes(), page_bytes_);
  EXPECT_EQ(wake(territory_->address() + 5 * page_bytes_, UINT64_MAX), territory_->bytes());
  EXPECT_EQ(territory_->missing_bytes(), 0u);
  for (const uint64_t page : {1, 3, 5}) {
    const CUdeviceptr at = territory_->address() + page * page_bytes_;
    EXPECT_EQ(cuda().cuMemsetD8Async(at, 1, page_bytes_, nullptr), CUDA_SUCCESS);
  }
  EXPECT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
}

}  // namespace
}  // namespace commpool::internal::testing
