// One of several ranks that are processes: what it has until its process ends. The driver is its own, so that it may
// fail alone.
#pragma once

#include <memory>

#include "tests/registration/forked_ranks.h"
#include "tests/registration/symmetric_fixture.h"

namespace commpool::internal::testing {

struct ForkedRank {
  ForkedRank(int rank, int ranks, const Pipe& pipe_of_id)
      : number(rank), communicator(ConnectForkedRank(*driver, rank, ranks, pipe_of_id)) {}

  PoolConfiguration Configured() const {
    PoolConfiguration configuration;
    configuration.backing.placement.device = number;
    configuration.home = communicator;
    return configuration;
  }
  std::shared_ptr<Pool> Create(const PoolConfiguration& configuration) {
    return runtime.pools().Find(runtime.CreatePool(configuration).value()).value();
  }
  void Abort() {
    EXPECT_EQ(driver->nccl.ncclCommAbort(std::exchange(communicator, nullptr)), ncclSuccess) << "rank " << number;
  }

  const int number;
  const std::shared_ptr<Driver> driver = std::make_shared<Driver>(*SharedDriver());
  const PrimaryContext context = PrimaryContext::Retain(*driver, number).value();
  const ContextGuard current{*driver, context};
  Runtime runtime{driver};
  ncclComm_t communicator;
};

}  // namespace commpool::internal::testing
