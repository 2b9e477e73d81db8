// Which segments a pool's registrars have, without a pool or a driver.
#include "src/library/registration/registrar_book.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <new>
#include <stdexcept>

#include "tests/base/expect_status.h"
#include "tests/registration/library_of_a_test.h"

namespace commpool::internal::testing {
namespace {

constexpr uint64_t kDeadlineMs = 1;

const std::vector<SegmentToRegister> kSegments = {{0, 0x10000, 4096}, {1, 0x20000, 8192}, {3, 0x40000, 4096}};

// While it lives, what is written to stderr can be read, as it comes.
class RedirectedErrors {
 public:
  RedirectedErrors() : before_(dup(STDERR_FILENO)) {
    int ends[2] = {};
    EXPECT_EQ(pipe(ends), 0);
    reader_ = fdopen(ends[0], "r");
    EXPECT_EQ(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
    close(ends[1]);
  }
  ~RedirectedErrors() {
    dup2(before_, STDERR_FILENO);
    close(before_);
    std::fclose(reader_);
  }
  RedirectedErrors(const RedirectedErrors&) = delete;
  RedirectedErrors& operator=(const RedirectedErrors&) = delete;

  // Waits for it.
  std::string NextLine() {
    char line[400] = "";
    EXPECT_NE(std::fgets(line, sizeof(line), reader_), nullptr);
    return line;
  }

 private:
  const int before_;
  FILE* reader_ = nullptr;
};

class Registrars : public ::testing::Test {
 protected:
  Status Add(LibraryOfATest& library) {
    commpool_segment_traits traits = {};
    traits.granularity_bytes = 4096;
    return book_.Add(library.Copied(), traits, kSegments);
  }
  Status RegisterLacking(const std::vector<SegmentToRegister>& segments) {
    return book_.RegisterLacking(segments).status();
  }

  LibraryOfATest library_;
  RegistrarBook book_{kDeadlineMs};
};

TEST_F(Registrars, HaveEachSegmentOnce) {
  ExpectOk(Add(library_));
  EXPECT_EQ(library_.registered().size(), 3u);
  EXPECT_EQ(library_.traits().granularity_bytes, 4096u);
  EXPECT_EQ(book_.registrations(), 3u);
  EXPECT_EQ(book_.pending(5), 2u);
  EXPECT_EQ(book_.pending(0), 0u) << "a segment is registered before the pool's book has it";
  EXPECT_TRUE(book_.IsRegistered(3));
  EXPECT_FALSE(book_.IsRegistered(2));
  EXPECT_EQ(book_.RegisterLacking(kSegments).value().size(), 0u);
  EXPECT_EQ(library_.added(), 3);
}

TEST_F(Registrars, AreToldOfTheirEnd) {
  ExpectOk(Add(library_));
  ASSERT_TRUE(book_.Remove(library_.name()).ok());
  EXPECT_TRUE(library_.registered().empty());
  EXPECT_EQ(library_.ended(), 1);
  EXPECT_FALSE(book_.Has(library_.name()));
}

TEST_F(Registrars, ThatTakeNoSuchSegmentsAreAskedForNone) {
  library_.check_answers = COMMPOOL_NOT_SUPPORTED;
  library_.why = "no RDMA flag";
  ExpectFailure(Add(library_), StatusCode::kNotSupported,
                "registrar library: taking such segments failed: no RDMA flag");
  EXPECT_EQ(library_.added(), 0);
  EXPECT_FALSE(book_.Has(library_.name()));
}

TEST_F(Registrars, ThatFailHalfWayHaveNothing) {
  library_.add_answers = COMMPOOL_OUT_OF_MEMORY;
  library_.adds_before_failure = 2;
  ExpectFailure(Add(library_), StatusCode::kOutOfMemory, "registering 4 KiB failed: the card is full");
  EXPECT_TRUE(library_.registered().empty());
  EXPECT_EQ(library_.ended(), 0) << "the program has it still";
  EXPECT_FALSE(book_.Has(library_.name()));
}

TEST_F(Registrars, ThatFailForALaterSegmentKeepTheEarlierOnes) {
  ExpectOk(Add(library_));
  LibraryOfATest other("other");
  ExpectOk(Add(other));
  other.add_answers = COMMPOOL_DRIVER_ERROR;
  other.adds_before_failure = 1;
  ExpectFailure(RegisterLacking({{4, 0x50000, 4096}, {5, 0x60000, 4096}}), StatusCode::kFailedPrecondition,
                "registrar other");
  EXPECT_EQ(library_.registered().size(), 3u);
  EXPECT_EQ(other.registered().size(), 3u);
  EXPECT_EQ(book_.registrations(), 6u);
}

TEST_F(Registrars, ThatCannotEndARegistrationKeepIt) {
  ExpectOk(Add(library_));
  library_.remove_answers = COMMPOOL_DRIVER_ERROR;
  ExpectFailure(book_.DeregisterSegment(1), StatusCode::kFailedPrecondition, "deregistering 8 KiB failed");
  EXPECT_TRUE(book_.IsRegistered(1));
  EXPECT_FALSE(book_.Remove(library_.name()).ok());
  EXPECT_EQ(library_.ended(), 0);
  library_.remove_answers = COMMPOOL_OK;
  ExpectOk(book_.RemoveAll());
  EXPECT_TRUE(library_.registered().empty());
  EXPECT_EQ(library_.ended(), 1);
}

TEST_F(Registrars, ThatThrowHaveFailed) {
  library_.before_add = [] { throw std::runtime_error("boom"); };
  ExpectFailure(Add(library_), StatusCode::kInvalidArgument, "threw an exception, which it may not: boom");
  library_.before_add = [] { throw std::bad_alloc(); };
  ExpectFailure(Add(library_), StatusCode::kOutOfMemory, "threw std::bad_alloc");
  library_.before_add = [] { throw 7; };
  ExpectFailure(Add(library_), StatusCode::kInvalidArgument, "threw something");
  EXPECT_EQ(book_.registrations(), 0u);
}

// The functions of a registrar that block get this test's line while they run: the first one waits for it.
TEST_F(Registrars, ThatBlockAreNamedInTheLogMeanwhile) {
  RedirectedErrors log;
  std::string line;
  library_.before_add = [&] {
    // The question before may be named too, where this machine is slow.
    while (line.find("registering") == std::string::npos) line = log.NextLine();
  };
  ExpectOk(Add(library_));
  EXPECT_EQ(line.find("commpool warning: registrar library: registering 4 KiB has not returned after 1 ms; "), 0u)
      << line;
}

TEST_F(Registrars, KeepWhatIsAboutToBeRegistered) {
  {
    const RegistrarBook::Claim claim(book_, kSegments);
    EXPECT_TRUE(book_.IsRegistered(3));
    EXPECT_FALSE(book_.IsRegistered(2));
    EXPECT_EQ(book_.registrations(), 0u);
  }
  EXPECT_FALSE(book_.IsRegistered(3));
}

TEST_F(Registrars, ThatGiveNoReasonAreNamedAllTheSame) {
  library_.add_answers = COMMPOOL_NOT_SUPPORTED;
  library_.why = "";
  ExpectFailure(Add(library_), StatusCode::kNotSupported, "registrar library: registering 4 KiB failed: it gave no");
}

TEST_F(Registrars, CannotForgeLinesOfALog) {
  library_.add_answers = COMMPOOL_NOT_SUPPORTED;
  library_.why = "broken\ncommpool: all is well";
  ExpectFailure(Add(library_), StatusCode::kNotSupported, "broken\\ncommpool");
}

TEST_F(Registrars, OfOneNameAreOne) {
  ExpectOk(Add(library_));
  LibraryOfATest again;
  ExpectFailure(Add(again), StatusCode::kFailedPrecondition, "has a registrar named library already");
  EXPECT_EQ(again.added(), 0);
}

TEST_F(Registrars, KeepTheirSegmentsWhenThoseAreRenumbered) {
  ExpectOk(Add(library_));
  book_.Renumber({{0, 0x40000, 4096}, {1, 0x10000, 4096}, {2, 0x20000, 8192}});
  ExpectOk(book_.DeregisterSegment(0));
  EXPECT_EQ(library_.registered().count(reinterpret_cast<void*>(0x40000)), 0u);
  EXPECT_EQ(library_.registered().size(), 2u);
}

}  // namespace
}  // namespace commpool::internal::testing
