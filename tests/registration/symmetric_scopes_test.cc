// Scopes of symmetric pools: what a full one hands on is the same on every rank (rule 4).
#include "tests/registration/symmetric_fixture.h"

namespace commpool::internal::testing {
namespace {

class SymmetricScopes : public SymmetricTest {
 protected:
  // Default pools and fixed ones give back what the test made them hold.
  void TearDown() override {
    if (!IsSkipped()) {
      for (const std::shared_ptr<Pool>& pool : runtime().pools().All()) {
        if (!pool->symmetric()) ExpectOk({pool->Trim(0).status()});
      }
    }
    SymmetricTest::TearDown();
  }

  // A scope of this thread for the length of `body`.
  Status In(const std::shared_ptr<Pool>& pool, SizeRange sizes, Exhaustion exhaustion,
            const std::function<Status()>& body) {
    Result<ScopeHandle> scope = runtime().scopes().Begin(
        {.pool = pool, .filter = ScopeFilter::kThread, .stream = 0, .sizes = sizes, .exhaustion = exhaustion});
    if (!scope.ok()) return scope.status();
    const Status done = body();
    const Status ended = runtime().scopes().End(*scope);
    return done.ok() ? ended : done;
  }
  std::shared_ptr<Pool> SymmetricOf(const Rank& rank) { return runtime().pools().Find(HandleOf(rank)).value(); }
  std::shared_ptr<Pool> MakeFixed(const Rank& rank, const char* name, uint64_t limit) {
    PoolConfiguration configuration;
    configuration.name = name;
    configuration.backing.placement.device = rank.number;
    configuration.limit_bytes = limit;
    return runtime().pools().Find(runtime().CreatePool(std::move(configuration)).value()).value();
  }
  // Allocates and frees; appends the first letter of the pool that served, '!' where none did.
  Status Try(const Rank& rank, uint64_t bytes, std::string* order, std::vector<CUdeviceptr>* kept) {
    Result<CUdeviceptr> address = runtime().Allocate(rank.number, bytes, rank.stream);
    *order += address.ok() ? runtime().addresses().OwnerOf(*address).value()->name()[0] : '!';
    if (address.ok()) kept->push_back(*address);
    return Status();
  }
  Status FreeAll(const std::vector<CUdeviceptr>& blocks) {
    for (const CUdeviceptr block : blocks) {
      Status status = runtime().Free(block);
      if (!status.ok()) return status;
    }
    return Status();
  }
};

TEST_F(SymmetricScopes, AFullPoolHandsOnTheSameRequestsOnEveryRank) {
  CreateAndReserve(4 * kMiB);
  std::vector<std::string> orders(static_cast<size_t>(last() + 1));
  ExpectOk(Run([&](Rank& rank) {
    std::vector<CUdeviceptr> kept;
    std::string& order = orders[static_cast<size_t>(rank.number)];
    const Status status = In(SymmetricOf(rank), {kMiB, UINT64_MAX}, Exhaustion::kNextScope, [&] {
      for (const uint64_t bytes : {kMiB, kKiB, 2 * kMiB, 2 * kMiB, kMiB, kMiB}) {
        Status tried = Try(rank, bytes, &order, &kept);
        if (!tried.ok()) return tried;
      }
      return Status();
    });
    const Status freed = FreeAll(kept);
    return status.ok() ? freed : status;
  }));
  for (const std::string& order : orders) EXPECT_EQ(order, "gdgdgd");
  ExpectOk(Reclaim());  // the sequences agree
}

// Rank 0's fixed pool is smaller than the others': what it hands on must not move the symmetric pool's blocks.
TEST_F(SymmetricScopes, RequestsThatAFixedPoolHandsOnSkipSymmetricPools) {
  CreateAndReserve(8 * kMiB);
  std::vector<std::string> orders(static_cast<size_t>(last() + 1));
  ExpectOk(Run([&](Rank& rank) {
    std::vector<CUdeviceptr> kept;
    std::string& order = orders[static_cast<size_t>(rank.number)];
    const std::shared_ptr<Pool> fixed = MakeFixed(rank, "fixed", rank.number == 0 ? kMiB : UINT64_MAX);
    return In(SymmetricOf(rank), {}, Exhaustion::kError, [&] {
      return In(fixed, {}, Exhaustion::kNextScope, [&] {
        Status tried = Try(rank, 4 * kMiB, &order, &kept);
        return tried.ok() ? FreeAll(kept) : tried;
      });
    });
  }));
  EXPECT_EQ(orders[0], "d");
  for (size_t rank = 1; rank < orders.size(); ++rank) EXPECT_EQ(orders[rank], "f");
  ExpectOk(Reclaim());
}

}  // namespace
}  // namespace commpool::internal::testing
