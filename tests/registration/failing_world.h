// A pool of one rank with everything that its operations may need, and the operations: for tests in which calls fail.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "src/library/pool/runtime.h"
#include "tests/registration/rank_group.h"

namespace commpool::internal::testing {

enum class Kind { kFixed, kExpandable, kSymmetric };

// The state that a failed operation must not change.
struct State {
  std::vector<uint64_t> books;  // the pool's counters, and the device's account
  size_t resources = 0;         // of the driver

  // The part of the books that allocations change; it comes first.
  std::vector<uint64_t> blocks() const { return {books.begin(), books.begin() + std::min<long>(4, std::ssize(books))}; }
};

// Its destructor closes the pool, or ends it alone where the channel is broken.
class World {
 public:
  explicit World(Kind kind);
  ~World();

  Runtime& runtime() { return *runtime_; }
  Pool& pool() { return *pool_; }
  // The pools that CreateBoth made.
  std::vector<PoolHandle> both() const { return {pool_->handle(), beside_->handle()}; }
  CUstream stream() { return group_[0].stream; }
  CUstream other_stream() const { return other_stream_; }
  ncclComm_t home() { return group_[0].communicator; }
  ncclComm_t second() const { return second_[0]; }

  Status Create();
  Status CreateBoth();
  Status Allocate(uint64_t bytes, CUstream stream);
  // Records a stream for the block that was allocated last.
  Status RecordLast();
  Status Free();
  Status BeginCapture();
  Status ReleaseStream();
  State Look() const;

  // How often a symmetric pool's all-gather was called.
  int gathers() const { return gathers_; }
  void FailGatherAfter(int calls) { fail_at_ = gathers_ + calls; }

 private:
  static int Gather(const void* sent, void* received, size_t bytes, void* context);
  Result<std::shared_ptr<Pool>> Make(const char* name);
  void End(std::shared_ptr<Pool>& pool);
  void EndCapture();

  const Kind kind_;
  RankGroup group_{1};
  PrimaryContext peer_;
  ContextGuard current_;
  std::vector<ncclComm_t> second_;
  CUstream other_stream_ = nullptr;
  std::unique_ptr<Runtime> runtime_;
  std::shared_ptr<Pool> pool_;
  std::shared_ptr<Pool> beside_;
  std::vector<CUdeviceptr> blocks_;
  CaptureHandle capture_ = 0;
  int gathers_ = 0;
  int fail_at_ = -1;
};

// After some failures addresses may stay, and memory that NCCL could still use.
enum class Keeps { kState, kBooks, kNothing };
enum class Again { kWorks, kDoesNot };

struct Operation {
  const char* name;
  Kind kind;
  Status (*before)(World&);
  Status (*act)(World&);
  Keeps keeps = Keeps::kState;
  Again again = Again::kWorks;
};
inline void PrintTo(const Operation& operation, std::ostream* stream) { *stream << operation.name; }

std::vector<Operation> Operations();

}  // namespace commpool::internal::testing
