// A symmetric pool on every rank of a group, for the tests of collective calls.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "src/library/base/bytes.h"
#include "src/library/pool/runtime.h"
#include "src/library/pool/symmetric/symmetric_mode.h"
#include "tests/registration/rank_group.h"

namespace commpool::internal::testing {

// Uses four ranks, or as many as a test asks for, where there are enough devices; at least two. In the end it closes
// every pool, which must succeed.
class SymmetricTest : public DriverTest {
 protected:
  explicit SymmetricTest(int most_ranks = 4) : most_ranks_(most_ranks) {}

  using Adjust = std::function<void(const Rank&, PoolConfiguration&)>;

  void SetUp() override;
  void TearDown() override;

  RankGroup& group() { return *group_; }
  Runtime& runtime() { return *runtime_; }
  int last() const { return group_->size() - 1; }

  static PoolConfiguration Configured(const Rank& rank);
  // An Adjust: the program frees in each stream's order.
  static void Ordered(const Rank&, PoolConfiguration& configuration) {
    configuration.frees = engine::FreeOrder::kOrdered;
  }
  // Makes the test's pool on every rank; `adjust` changes what a rank asks for.
  Statuses Create(const Adjust& adjust = nullptr);
  // The same and then its first reserve, which must succeed.
  void CreateAndReserve(uint64_t bytes, const Adjust& adjust = nullptr);
  Pool& PoolOf(const Rank& rank) { return *pools_[static_cast<size_t>(rank.number)]; }
  PoolHandle HandleOf(const Rank& rank) const { return handles_[static_cast<size_t>(rank.number)]; }

  Statuses Run(const std::function<Status(Rank&)>& body) { return group_->Run(body); }
  void ForEach(const std::function<void(Rank&)>& body) { group_->ForEach(body); }
  Statuses Reserve(uint64_t bytes);
  Statuses Reclaim();
  Statuses Trim(uint64_t keep_bytes);
  Statuses Close();

  // This rank gives up its home as after a loss; no other rank takes part.
  Status LeaveHome(Rank& rank);
  void LeaveAll();
  // Makes a communicator for the ranks from `first` on, which are then at home there.
  void Connect(int first);
  Statuses RunFrom(int first, const std::function<Status(Rank&)>& body);
  Statuses RehomeFrom(int first);

  // Allocates one block on each rank, which must succeed. Rank 0's comes first.
  std::vector<CUdeviceptr> Allocate(uint64_t bytes);
  void Free(const std::vector<CUdeviceptr>& blocks);
  // The offset of each rank's block in its window of the rank's communicator.
  std::vector<uint64_t> OffsetsOf(const std::vector<CUdeviceptr>& blocks);
  uint64_t ReservedBytes(int rank);
  uint64_t RegisteredSegments(int rank);

  // Ends the pools' handles without a call of NCCL.
  void DestroyPools();
  void ReleasePoolOf(int rank);
  // Ends runtime and communicators, before the fixture looks for leaks and reports.
  void End();

 private:
  const int most_ranks_;
  std::optional<RankGroup> group_;
  std::unique_ptr<Runtime> runtime_;
  std::vector<PoolHandle> handles_;
  std::vector<std::shared_ptr<Pool>> pools_;
};

}  // namespace commpool::internal::testing
