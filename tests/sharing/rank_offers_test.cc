// Descriptors that ranks offer each other: a caller that knows the secret gets them, as long as they are offered.
#include "src/library/sharing/rank_offers.h"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "src/library/sharing/share_server.h"
#include "tests/driver/emulator_fixture.h"

namespace commpool::internal::testing {
namespace {

class RankOffers : public DriverTest {
 protected:
  RankOffers() {
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
    server_ = std::make_unique<ShareServer>(driver(), folder_);
  }
  ~RankOffers() override {
    server_.reset();
    std::filesystem::remove_all(folder_);
  }

  // Each is the reading end of a pipe that holds its number.
  static std::vector<FileDescriptor> Numbered(char count) {
    std::vector<FileDescriptor> made;
    for (char number = 0; number < count; ++number) {
      int ends[2] = {-1, -1};
      EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
      EXPECT_EQ(write(ends[1], &number, 1), 1);
      close(ends[1]);
      made.emplace_back(ends[0]);
    }
    return made;
  }
  RankOffer Offer(char count) { return server_->Offer(Numbered(count)).value(); }
  static Result<FileDescriptor> Take(const OfferPlace& place, size_t number) {
    return TakeOffered(place, number, DeadlineAfter(std::chrono::seconds(20)));
  }
  static void ExpectRefusal(const Result<FileDescriptor>& taken, StatusCode code, const std::string& why) {
    EXPECT_EQ(taken.status().code(), code);
    EXPECT_NE(taken.status().message().find(why), std::string::npos) << taken.status().message();
  }

  std::string folder_ = "/tmp/commpool-offers-XXXXXX";
  std::unique_ptr<ShareServer> server_;
};

TEST_F(RankOffers, GoToEveryCallerThatKnowsTheSecret) {
  const RankOffer first = Offer(3);
  const RankOffer second = Offer(1);
  EXPECT_NE(first.place.secret, second.place.secret);
  for (const size_t number : {2, 0, 1}) {
    const Result<FileDescriptor> taken = Take(first.place, number);
    ASSERT_TRUE(taken.ok()) << taken.status().message();
    char read_number = -1;
    EXPECT_EQ(read(taken->get(), &read_number, 1), 1);
    EXPECT_EQ(static_cast<size_t>(read_number), number);
  }
  EXPECT_TRUE(Take(first.place, 0).ok());
  EXPECT_TRUE(Take(second.place, 0).ok());
}

TEST_F(RankOffers, AreRefusedBeyondTheirEndAndWithoutTheSecret) {
  const RankOffer offer = Offer(2);
  ExpectRefusal(Take(offer.place, 2), StatusCode::kNotFound, "it offers nothing any more");
  ExpectRefusal(Take({offer.place.socket, {1, 2}}, 0), StatusCode::kNotFound, "the secret is wrong");
}

TEST_F(RankOffers, EndWithTheirOwner) {
  OfferPlace place;
  {
    const RankOffer offer = Offer(1);
    place = offer.place;
    EXPECT_TRUE(Take(place, 0).ok());
  }
  ExpectRefusal(Take(place, 0), StatusCode::kNotFound, "it offers nothing any more");
}

// As of a rank on another host, or in a container with files of its own.
TEST_F(RankOffers, CannotBeTakenWhereNobodyListens) {
  const RankOffer offer = Offer(1);
  ExpectRefusal(Take({folder_ + "/elsewhere", offer.place.secret}, 0), StatusCode::kRemoteFailure,
                "its process has ended");
  server_->Stop();
  ExpectRefusal(Take(offer.place, 0), StatusCode::kRemoteFailure, "its process has ended");
  EXPECT_EQ(server_->Offer({}).status().code(), StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace commpool::internal::testing
