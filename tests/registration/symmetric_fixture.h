// A symmetric pool on every rank of a group, for the tests of collective calls.
#ifndef COMMPOOL_TESTS_REGISTRATION_SYMMETRIC_FIXTURE_H_
#define COMMPOOL_TESTS_REGISTRATION_SYMMETRIC_FIXTURE_H_

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "src/base/bytes.h"
#include "src/pool/runtime.h"
#include "tests/registration/rank_group.h"

namespace commpool::internal::testing {

// Four ranks where there are devices for them, at least two. At the end every pool that was made is closed, which must
// succeed.
class SymmetricTest : public DriverTest {
 protected:
  using Adjust = std::function<void(const Rank&, PoolConfiguration&)>;

  void SetUp() override;
  void TearDown() override;

  RankGroup& group() { return *group_; }
  Runtime& runtime() { return *runtime_; }
  int last() const { return group_->size() - 1; }

  static PoolConfiguration Configured(const Rank& rank);
  // Makes the test's pool on every rank; `adjust` changes what a rank asks for.
  Statuses Create(const Adjust& adjust = nullptr);
  Pool& PoolOf(const Rank& rank) { return *pools_[static_cast<size_t>(rank.number)]; }
  PoolHandle HandleOf(const Rank& rank) const { return handles_[static_cast<size_t>(rank.number)]; }

  Statuses Run(const std::function<Status(Rank&)>& body) { return group_->Run(body); }
  Statuses Reserve(uint64_t bytes);
  Statuses Reclaim();
  Statuses Trim(uint64_t keep_bytes);
  Statuses Close();

  // One block on each rank, rank 0's first. The calls must succeed.
  std::vector<CUdeviceptr> Allocate(uint64_t bytes);
  void Free(const std::vector<CUdeviceptr>& blocks);
  // Where each rank's block lies in its window of the rank's communicator.
  std::vector<uint64_t> OffsetsOf(const std::vector<CUdeviceptr>& blocks);
  uint64_t ReservedBytes(int rank);
  uint64_t RegisteredSegments(int rank);

  // The pools' handles end without a call to NCCL.
  void DestroyPools();
  void ReleasePoolOf(int rank);
  // Runtime and communicators end, before the fixture looks at leaks and reports.
  void End();

 private:
  std::optional<RankGroup> group_;
  std::unique_ptr<Runtime> runtime_;
  std::vector<PoolHandle> handles_;
  std::vector<std::shared_ptr<Pool>> pools_;
};

}  // namespace commpool::internal::testing

#endif  // COMMPOOL_TESTS_REGISTRATION_SYMMETRIC_FIXTURE_H_
