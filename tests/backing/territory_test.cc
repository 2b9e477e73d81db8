// A territory's addresses and the pages in them, without a pool.
#include "src/library/backing/territory.h"

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "tests/backing/backing_fixture.h"

namespace commpool::internal::testing {
namespace {

class Territories : public BackingTest {
 protected:
  Territories() : context_(PrimaryContext::Retain(driver(), 0).value()), current_(driver(), context_) {}

  PhysicalMemory MakePage() { return backing_->MakePage(page_bytes_).value(); }
  CUdeviceptr At(uint64_t page) const { return territory_->address() + page * page_bytes_; }
  // Pages that the territory's devices may use.
  void Put(std::initializer_list<uint64_t> pages) {
    for (const uint64_t page : pages) {
      ASSERT_TRUE(territory_->Map(MakePage(), At(page)).ok());
      ASSERT_TRUE(territory_->Open(At(page), page_bytes_).ok());
    }
  }
  bool Reaches(int device, uint64_t page) {
    unsigned long long flags = 0;
    const CUmemLocation location{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
    EXPECT_EQ(cuda().cuMemGetAccess(&flags, &location, At(page)), CUDA_SUCCESS);
    return flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  }
  bool IsThere(uint64_t page) {
    CUmemGenericAllocationHandle handle = 0;
    if (cuda().cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(At(page))) != CUDA_SUCCESS) return false;
    return cuda().cuMemRelease(handle) == CUDA_SUCCESS;
  }

  PrimaryContext context_;
  ContextGuard current_;
  const std::unique_ptr<Backing> backing_ = Make({.kind = BackingKind::kVmm});
  const uint64_t page_bytes_ = backing_->granularity();
  const std::unique_ptr<Territory> territory_ = Territory::Reserve(*backing_, 8 * page_bytes_).value();
};

TEST_F(Territories, ReleaseEveryPageWithTheirAddresses) {
  Put({0, 3, 5});
  ASSERT_TRUE(territory_->Release().ok());
  // Expects that nothing is left: no page and no reserved addresses.
  for (const uint64_t page : {0, 3, 5}) EXPECT_FALSE(IsThere(page));
  EXPECT_EQ(territory_->missing_bytes(), 0u);
  const uint64_t calls = CallCount("*");
  EXPECT_TRUE(territory_->Release().ok()) << "a second time there is nothing to do";
  EXPECT_EQ(CallCount("*"), calls);
}

TEST_F(Territories, HandAPageOverToAnotherPlace) {
  const CUdeviceptr from = territory_->address();
  const CUdeviceptr to = from + 4 * page_bytes_;
  ASSERT_TRUE(territory_->Map(MakePage(), from).ok());
  Result<std::vector<PhysicalMemory>> row = territory_->UnmapRow(from, page_bytes_);
  ASSERT_TRUE(row.ok());
  ASSERT_TRUE(territory_->Map(std::move(row->front()), to).ok());
  EXPECT_TRUE(territory_->Open(to, page_bytes_).ok());
  EXPECT_TRUE(territory_->Drop(to, page_bytes_).ok());
  EXPECT_TRUE(territory_->Map(MakePage(), from).ok()) << "the place that it left is free";
}

TEST_F(Territories, TellWhereTheDriverHasNoAddressesOrMapsNothing) {
  COMMPOOL_REQUIRE_EMULATOR("it makes driver calls fail");
  {
    const InjectedFault fault({.call = "cuMemAddressReserve", .result = CUDA_ERROR_OUT_OF_MEMORY});
    EXPECT_EQ(Territory::Reserve(*backing_, page_bytes_).status().code(), StatusCode::kOutOfMemory);
  }
  {
    const InjectedFault fault({.call = "cuMemMap", .result = CUDA_ERROR_UNKNOWN});
    const Status status = territory_->Map(MakePage(), At(0));
    EXPECT_NE(status.message().find("cuMemMap"), std::string::npos) << status.message();
  }
  EXPECT_TRUE(territory_->Map(MakePage(), At(0)).ok());
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
    return territory_->WakeFrom(from, at_least, *backing_).value() - territory_->address();
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

TEST_F(Territories, HandARowOfPagesOverInOneCall) {
  for (const uint64_t page : {1, 2, 3}) ASSERT_TRUE(territory_->Map(MakePage(), At(page)).ok());
  const uint64_t calls = CallCount("cuMemUnmap");
  Result<std::vector<PhysicalMemory>> row = territory_->UnmapRow(At(1), 2 * page_bytes_);
  ASSERT_TRUE(row.ok());
  EXPECT_EQ(CallCount("cuMemUnmap"), calls + 1);
  ASSERT_EQ(row->size(), 2u);
  EXPECT_FALSE(IsThere(1) || IsThere(2));
  EXPECT_TRUE(IsThere(3));
  for (const uint64_t page : {0, 1}) {
    ASSERT_TRUE(territory_->Map(std::move((*row)[page]), At(6 + page)).ok());
    ASSERT_TRUE(territory_->Open(At(6 + page), page_bytes_).ok());
    EXPECT_TRUE(Reaches(0, 6 + page));
  }
}

TEST_F(Territories, KeepARowThatTheDriverDoesNotUnmap) {
  COMMPOOL_REQUIRE_EMULATOR("it makes a driver call fail");
  Put({1, 2});
  {
    const InjectedFault fault({.call = "cuMemUnmap", .result = CUDA_ERROR_UNKNOWN});
    const Status status = territory_->UnmapRow(At(1), 2 * page_bytes_).status();
    EXPECT_NE(status.message().find("cuMemUnmap"), std::string::npos) << status.message();
  }
  EXPECT_TRUE(IsThere(1) && IsThere(2));
  EXPECT_TRUE(territory_->UnmapRow(At(1), page_bytes_).ok());
  EXPECT_TRUE(territory_->UnmapRow(At(2), page_bytes_).ok());
}

TEST_F(Territories, DropThePagesOfARangeAndNoOther) {
  Put({0, 1, 2, 3});
  ASSERT_TRUE(territory_->Drop(At(1), 2 * page_bytes_).ok());
  EXPECT_TRUE(IsThere(0));
  EXPECT_FALSE(IsThere(1));
  EXPECT_FALSE(IsThere(2));
  EXPECT_TRUE(IsThere(3));
}

TEST_F(Territories, DropAllTheyCanAndReturnTheFirstFailure) {
  COMMPOOL_REQUIRE_EMULATOR("it makes driver calls fail");
  AllowLeak("");  // the driver kept it
  Put({0, 1, 2});
  {
    const InjectedFault unmap({.call = "cuMemUnmap", .result = CUDA_ERROR_UNKNOWN});
    const InjectedFault release({.call = "cuMemRelease", .result = CUDA_ERROR_INVALID_VALUE});
    const Status status = territory_->Drop(At(0), 3 * page_bytes_);
    EXPECT_NE(status.message().find("cuMemUnmap"), std::string::npos) << status.message();
  }
  EXPECT_TRUE(IsThere(0));
  EXPECT_FALSE(IsThere(1));
  EXPECT_FALSE(IsThere(2));
}

TEST_F(Territories, AskTheDriverAgainToUnmapWhatIsInTheWay) {
  COMMPOOL_REQUIRE_EMULATOR("it makes a driver call fail");
  Put({0});
  {
    const InjectedFault unmap({.call = "cuMemUnmap", .result = CUDA_ERROR_UNKNOWN, .count = 2});
    EXPECT_FALSE(territory_->Drop(At(0), page_bytes_).ok());
    const Status taken = territory_->Map(MakePage(), At(0));
    EXPECT_NE(taken.message().find("cuMemUnmap"), std::string::npos) << taken.message();
  }
  Put({0});
  EXPECT_TRUE(Reaches(0, 0));
}

TEST_F(Territories, LetPeersUsePresentAndFuturePages) {
  COMMPOOL_REQUIRE_DEVICES(2);
  if (ReachablePeer() < 0) GTEST_SKIP() << "no other device reaches device 0's memory";
  const int peer = ReachablePeer();
  Put({0, 1, 3});
  ASSERT_TRUE(territory_->Grant(peer).ok());
  Put({5});
  for (const uint64_t page : {0, 1, 3, 5}) EXPECT_TRUE(Reaches(peer, page) && Reaches(0, page)) << page;
  ASSERT_TRUE(territory_->Revoke(peer).ok());
  Put({6});
  for (const uint64_t page : {0, 1, 3, 5, 6}) EXPECT_TRUE(!Reaches(peer, page) && Reaches(0, page)) << page;
  EXPECT_EQ(territory_->Revoke(0).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(Reaches(0, 0)) << "its own device's access is not taken back";
}

TEST_F(Territories, LetNoPeerInWhereTheDriverRefuses) {
  COMMPOOL_REQUIRE_EMULATOR("it makes a driver call fail");
  const int peer = ReachablePeer();
  Put({0, 2});
  {
    const InjectedFault fault({.call = "cuMemSetAccess", .result = CUDA_ERROR_UNKNOWN});
    EXPECT_EQ(territory_->Grant(peer).code(), StatusCode::kDriverError);
  }
  Put({4});
  EXPECT_FALSE(Reaches(peer, 4)) << "it is no peer of what comes";
  ASSERT_TRUE(territory_->Grant(peer).ok());
  {
    const InjectedFault fault({.call = "cuMemSetAccess", .result = CUDA_ERROR_UNKNOWN});
    EXPECT_EQ(territory_->Revoke(peer).code(), StatusCode::kDriverError);
  }
  Put({6});
  EXPECT_TRUE(Reaches(peer, 6)) << "it is one still";
}

TEST_F(Territories, KeepAllThatIsMappedUntilTheDriverUnmapsIt) {
  COMMPOOL_REQUIRE_EMULATOR("it makes driver calls fail");
  Put({0, 1});
  {
    const InjectedFault fault({.call = "cuMemUnmap", .result = CUDA_ERROR_UNKNOWN});
    const Status status = territory_->Release();
    EXPECT_NE(status.message().find("cuMemUnmap"), std::string::npos) << status.message();
  }
  EXPECT_TRUE(IsThere(0) && IsThere(1));
  EXPECT_TRUE(territory_->Release().ok());
  EXPECT_FALSE(IsThere(0) || IsThere(1));
}

TEST_F(Territories, TellWhereTheirMemoryCannotBeReleased) {
  COMMPOOL_REQUIRE_EMULATOR("it makes a driver call fail");
  AllowLeak("");  // the driver kept it
  Put({0});
  const InjectedFault fault({.call = "cuMemRelease", .result = CUDA_ERROR_UNKNOWN});
  const Status status = territory_->Release();
  EXPECT_NE(status.message().find("cuMemRelease"), std::string::npos) << status.message();
}

TEST_F(Territories, ThatAreDestroyedLogWhatFailedAndNothingElse) {
  COMMPOOL_REQUIRE_EMULATOR("it makes a driver call fail");
  AllowLeak("");  // the driver kept it
  for (const bool fails : {false, true}) {
    std::unique_ptr<Territory> territory = Territory::Reserve(*backing_, page_bytes_).value();
    ASSERT_TRUE(territory->Map(MakePage(), territory->address()).ok());
    ::testing::internal::CaptureStderr();
    if (fails) {
      const InjectedFault fault({.call = "cuMemUnmap", .result = CUDA_ERROR_UNKNOWN});
      territory.reset();
    }
    territory.reset();
    const std::string log = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(log.find("cuMemUnmap") != std::string::npos, fails) << log;
    EXPECT_EQ(log.empty(), !fails) << log;
  }
}

TEST_F(Territories, ThatWereAbandonedCallNothing) {
  COMMPOOL_REQUIRE_EMULATOR("it leaks for good");
  AllowLeak("");  // an abandoned territory leaks on purpose
  std::unique_ptr<Backing> backing = Make({.kind = BackingKind::kVmm});
  std::unique_ptr<Territory> territory = Territory::Reserve(*backing, page_bytes_).value();
  ASSERT_TRUE(territory->Map(MakePage(), territory->address()).ok());
  const uint64_t calls = CallCount("*");
  territory->Abandon();
  EXPECT_TRUE(territory->Release().ok());
  territory.reset();
  backing.reset();
  EXPECT_EQ(CallCount("*"), calls);
}

}  // namespace
}  // namespace commpool::internal::testing
