// A segment that no pool has adopted yet: its memory, its room and its addresses.
#include "src/library/pool/segments/segment_store.h"
#include "tests/pool/pool_fixture.h"

namespace commpool::internal::testing {
namespace {

class NewSegments : public PoolTest {
 protected:
  NewSegments() : backing_(MakeBacking(driver(), {}).value()) {}

  NewSegment Make() {
    EXPECT_TRUE(account_.Take(kBytes));
    std::unique_ptr<Segment> segment = backing_->Make({.bytes = kBytes}).value();
    address_ = segment->address();
    AddressTable::Entry entry = addresses_.Add(address_, kBytes, nullptr).value();
    return NewSegment(Room(account_, kBytes), std::move(segment), std::move(entry));
  }
  // Of a book that has set one aside.
  void ReleaseSetAside(SegmentBook::Aside how) {
    SegmentBook book;
    internal::NewSegments segments;
    segments.push_back(Make());
    book.SetAside(std::move(segments), how);
    for (const NewSegment& segment : book.TakeSetAside(Pinned::kStay)) EXPECT_TRUE(segment->Release().ok());
  }
  bool HasEntry() const { return addresses_.RangeOf(address_).ok(); }

  static constexpr uint64_t kBytes = 4 * kMiB;
  const std::unique_ptr<Backing> backing_;
  MemoryAccount account_;
  AddressTable addresses_;
  CUdeviceptr address_ = 0;
};

TEST_F(NewSegments, GiveAllBackAtTheirEnd) {
  { const NewSegment unused = Make(); }
  EXPECT_EQ(account_.taken(), 0u);
  EXPECT_FALSE(HasEntry());
}

// Nobody may get the addresses: another rank may still know what was there.
TEST_F(NewSegments, KeepTheirAddressesReservedOnceTheyWereSetAsideForOtherRanks) {
  AllowLeak("reserved addresses");
  ReleaseSetAside(SegmentBook::Aside::kUnpinned);
  EXPECT_EQ(account_.taken(), 0u);
  EXPECT_FALSE(HasEntry());
}

TEST_F(NewSegments, GiveAllBackThoughTheDriverRefusedThemOnce) { ReleaseSetAside(SegmentBook::Aside::kRefused); }

TEST_F(NewSegments, KeepTheirRoomWhileTheirMemoryStaysMapped) {
  COMMPOOL_REQUIRE_EMULATOR("it makes a driver call fail");
  {
    NewSegment segment = Make();
    {
      const InjectedFault fault({.call = "cuMemUnmap", .result = CUDA_ERROR_UNKNOWN});
      EXPECT_EQ(segment->Release().code(), StatusCode::kDriverError);
    }
    EXPECT_EQ(account_.taken(), kBytes) << "the device has so much less";
    EXPECT_TRUE(segment->Release().ok());
  }
  EXPECT_EQ(account_.taken(), 0u);
}

TEST_F(NewSegments, BelongToThePoolThatAdoptsThem) {
  {
    NewSegment segment = Make();
    const std::unique_ptr<Segment> adopted = segment.Adopt();
    EXPECT_EQ(adopted->address(), address_);
    EXPECT_FALSE(segment);
  }
  EXPECT_EQ(account_.taken(), kBytes) << "the pool returns it";
  EXPECT_TRUE(HasEntry());
}

}  // namespace
}  // namespace commpool::internal::testing
