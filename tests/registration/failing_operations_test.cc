// Each call of an operation to the driver, to NCCL or to the program's all-gather fails once. The operation's error
// names the call, the pool's books and memory are as before, and a second try works.
#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "src/library/base/bytes.h"
#include "src/library/pool/group_calls.h"
#include "src/library/pool/runtime.h"
#include "src/library/pool/symmetric/symmetric_mode.h"
#include "tests/registration/rank_group.h"
#include "tools/common/pool_invariants.h"
#include "tools/common/sleep_alone.h"

namespace commpool::internal::testing {
namespace {

constexpr uint64_t kHalf = 16 * kMiB;
constexpr uint64_t kAll = 2 * kHalf;  // the most that a pool may have

enum class Kind { kFixed, kExpandable, kSymmetric };

// The state that a failed operation must not change.
struct State {
  std::vector<uint64_t> books;  // the pool's counters, and the device's account
  size_t resources = 0;         // of the driver

  // The part of the books that allocations change; it comes first.
  std::vector<uint64_t> blocks() const { return {books.begin(), books.begin() + std::min<long>(4, std::ssize(books))}; }
};

// A pool of one rank with everything that its operations may need. Its destructor closes the pool, or ends it alone
// where the channel is broken.
class World {
 public:
  explicit World(Kind kind)
      : kind_(kind),
        peer_(DeviceCountOfTests() > 1 ? PrimaryContext::Retain(*SharedDriver(), 1).value() : PrimaryContext()),
        current_(*SharedDriver(), group_[0].context),
        second_(group_.ConnectFrom(0)),
        runtime_(std::make_unique<Runtime>(SharedDriver())) {
    EXPECT_EQ(SharedDriver()->cuda.cuStreamCreate(&other_stream_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  }
  ~World() {
    EndCapture();
    while (!blocks_.empty()) static_cast<void>(Free());
    End(pool_);
    End(beside_);
    if (other_stream_ != nullptr) {
      ExpectOk({runtime_->ReleaseStream(other_stream_)});
      EXPECT_EQ(SharedDriver()->cuda.cuStreamDestroy(other_stream_), CUDA_SUCCESS);
    }
    ExpectOk({runtime_->ReleaseStream(stream())});
    runtime_.reset();
    group_.Destroy(second_);
  }

  Runtime& runtime() { return *runtime_; }
  Pool& pool() { return *pool_; }
  // The pools that CreateBoth made.
  std::vector<PoolHandle> both() const { return {pool_->handle(), beside_->handle()}; }
  CUstream stream() { return group_[0].stream; }
  CUstream other_stream() const { return other_stream_; }
  ncclComm_t home() { return group_[0].communicator; }
  ncclComm_t second() const { return second_[0]; }

  Status Create() {
    const Result<std::shared_ptr<Pool>> made = Make("failing");
    if (made.ok()) pool_ = *made;
    return made.status();
  }
  Status CreateBoth() {
    const Status first = Create();
    if (!first.ok()) return first;
    const Result<std::shared_ptr<Pool>> made = Make("beside");
    if (made.ok()) beside_ = *made;
    return made.status();
  }
  Status Allocate(uint64_t bytes, CUstream stream) {
    const Result<CUdeviceptr> block = runtime_->AllocateFrom(pool_->handle(), bytes, stream);
    if (block.ok()) blocks_.push_back(*block);
    return block.status();
  }
  // Records a stream for the block that was allocated last.
  Status RecordLast() { return runtime_->RecordStream(blocks_.back(), other_stream_); }

  Status Free() {
    const CUdeviceptr block = blocks_.back();
    blocks_.pop_back();
    return runtime_->Free(block);
  }
  Status BeginCapture() {
    EXPECT_EQ(SharedDriver()->cuda.cuStreamBeginCapture(stream(), CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    const Result<CaptureHandle> begun = runtime_->BeginCapture(pool_->handle(), stream());
    if (begun.ok()) {
      capture_ = *begun;
    } else {
      EndCapture();
    }
    return begun.status();
  }
  Status ReleaseStream() { return runtime_->ReleaseStream(other_stream_); }

  State Look() const {
    State state;
    state.resources = EmulatorLeaks().size();
    if (pool_ == nullptr) return state;
    MemoryAccount& account = runtime_->devices().Get(0).value()->account();
    state.books.assign(10, 0);
    for (const std::shared_ptr<Pool>& pool : {pool_, beside_}) {
      if (pool == nullptr) continue;
      const commpool_statistics statistics = pool->Statistics();
      const std::vector<uint64_t> own = {statistics.reserved_bytes.current,
                                         statistics.reserved_segments.current,
                                         statistics.allocated_blocks.current,
                                         statistics.free_bytes,
                                         statistics.registered_segments,
                                         statistics.pending_segments,
                                         statistics.asleep_bytes,
                                         statistics.kept_bytes,
                                         account.taken(),
                                         pool->basis().life.asleep() ? 1u : 0u};
      std::transform(own.begin(), own.end(), state.books.begin(), state.books.begin(), std::plus<>());
    }
    return state;
  }

  // How often a symmetric pool's all-gather was called.
  int gathers() const { return gathers_; }
  void FailGatherAfter(int calls) { fail_at_ = gathers_ + calls; }

 private:
  static int Gather(const void* sent, void* received, size_t bytes, void* context) {
    World& world = *static_cast<World*>(context);
    if (world.gathers_++ == world.fail_at_) return 1;
    std::memcpy(received, sent, bytes);
    return 0;
  }
  Result<std::shared_ptr<Pool>> Make(const char* name) {
    PoolConfiguration configuration;
    configuration.name = name;
    configuration.streams = Streams::kOutlive;
    configuration.limit_bytes = kAll;
    if (kind_ == Kind::kExpandable) configuration.mode = Mode::kExpandable;
    if (kind_ == Kind::kSymmetric) {
      configuration.home = home();
      configuration.all_gather = Gather;
      configuration.all_gather_context = this;
    }
    const Result<PoolHandle> made = runtime_->CreatePool(std::move(configuration));
    if (!made.ok()) return made.status();
    return runtime_->pools().Find(*made);
  }
  void End(std::shared_ptr<Pool>& pool) {
    if (pool == nullptr) return;
    CheckInvariants(*pool);
    Status closed = pool->Close();
    if (!closed.ok()) {
      ExpectOk({pool->mode().AbandonCommunicator(second(), CommunicatorLife::kAlive),
                pool->mode().AbandonCommunicator(home(), CommunicatorLife::kAlive)});
      closed = pool->Close();
    }
    ExpectOk({closed, runtime_->DestroyPool(pool->handle())});
    pool.reset();
  }
  void EndCapture() {
    const CudaDriver& cuda = SharedDriver()->cuda;
    if (capture_ != 0) ExpectOk({runtime_->EndCapture(std::exchange(capture_, 0))});
    CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
    EXPECT_EQ(cuda.cuStreamIsCapturing(stream(), &capturing), CUDA_SUCCESS);
    if (capturing == CU_STREAM_CAPTURE_STATUS_NONE) return;
    CUgraph graph = nullptr;
    cuda.cuStreamEndCapture(stream(), &graph);
    if (graph == nullptr) return;
    EXPECT_EQ(cuda.cuGraphDestroy(graph), CUDA_SUCCESS);
  }

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
void PrintTo(const Operation& operation, std::ostream* stream) { *stream << operation.name; }

Status Nothing(World&) { return Status(); }
Status Create(World& world) { return world.Create(); }
Status Reserve(World& world) { return world.pool().mode().Reserve(kHalf); }
Status CreateBoth(World& world) { return world.CreateBoth(); }
Status RegisterBoth(World& world) {
  return OnEach(world.runtime(), world.both(),
                [&](Pool& pool, size_t) { return pool.mode().RegisterWith(world.second()); });
}
Status ReserveBoth(World& world) { return ReservePools(world.runtime(), world.both(), kHalf); }
Status Register(World& world) { return world.pool().mode().RegisterWith(world.second()); }

// Makes the steps one after the other, until one fails.
template <Status (*... parts)(World&)>
Status Do(World& world) {
  Status status;
  ((status.ok() ? void(status = parts(world)) : void()), ...);
  return status;
}

Status Grow(World& world) { return world.Allocate(kHalf, nullptr); }
Status AllocateSmall(World& world) { return world.Allocate(2 * kMiB, nullptr); }
Status AllocateAll(World& world) { return world.Allocate(kHalf, world.other_stream()); }
Status AllocateAllElsewhere(World& world) { return world.Allocate(kAll, nullptr); }
Status Fill(World& world) { return world.Allocate(kAll, world.other_stream()); }
Status Free(World& world) { return world.Free(); }
Status Record(World& world) {
  const Status status = world.Allocate(4 * kMiB, nullptr);
  return status.ok() ? world.RecordLast() : status;
}
Status AllocateCaptured(World& world) { return world.Allocate(4 * kMiB, world.stream()); }
Status BeginCapture(World& world) { return world.BeginCapture(); }
Status ReleaseStream(World& world) { return world.ReleaseStream(); }
Status RegisterPending(World& world) { return world.pool().mode().RegisterPending().status(); }
Status Deregister(World& world) { return world.pool().mode().Deregister(world.second()); }
Status Trim(World& world) { return world.pool().Trim(0).status(); }
Status Reclaim(World& world) { return world.pool().mode().Reclaim().status(); }
Status Verify(World& world) { return world.pool().mode().AsSymmetric()->Verify(); }
Status Sleep(World& world) { return SleepAlone(world.pool(), {.keep = Keep::kHost, .graphs = LiveGraphs::kDiscarded}); }
Status Wake(World& world) { return WakeAlone(world.pool()); }
Status Grant(World& world) { return world.pool().segments().peers.Grant({1}); }
Status Revoke(World& world) { return world.pool().segments().peers.Revoke({1}); }
Status Close(World& world) { return world.pool().Close(); }
Status WaitForDevice(World& world) { return world.pool().blocks().WaitForDevice(); }
Status DefaultPool(World& world) { return world.runtime().DefaultPool(0).status(); }
Status LeaveHome(World& world) {
  return world.pool().mode().AbandonCommunicator(world.home(), CommunicatorLife::kAlive);
}
Status Rehome(World& world) { return world.pool().mode().AsSymmetric()->Rehome(world.second()); }

std::vector<Operation> Operations() {
  constexpr Keeps kBooks = Keeps::kBooks;
  constexpr Keeps kNothing = Keeps::kNothing;
  constexpr Again kDoesNot = Again::kDoesNot;
  return {
      {"DefaultPool", Kind::kFixed, Nothing, DefaultPool},
      {"CreateFixed", Kind::kFixed, Nothing, Create},
      {"GrowFixed", Kind::kFixed, Do<Create, AllocateSmall>, Grow},
      {"ReserveFixed", Kind::kFixed, Do<Create, AllocateSmall>, Reserve},
      {"RegisterFixed", Kind::kFixed, Do<Create, Reserve, AllocateSmall>, Register},
      {"RegisterPending", Kind::kFixed, Do<Create, Register, Reserve>, RegisterPending},
      {"DeregisterFixed", Kind::kFixed, Do<Create, Reserve, Register>, Deregister, kNothing},
      {"FreeFixed", Kind::kFixed, Do<Create, Record>, Free, kNothing, kDoesNot},
      {"ShareFixed", Kind::kFixed, Do<Create, Fill, Free>, AllocateAllElsewhere, kNothing, kDoesNot},
      {"WaitForDevice", Kind::kFixed, Do<Create, Record, Free>, WaitForDevice},
      {"TrimFixed", Kind::kFixed, Do<Create, Reserve>, Trim, kNothing},
      {"GrantFixed", Kind::kFixed, Do<Create, Reserve>, Grant},
      {"RevokeFixed", Kind::kFixed, Do<Create, Reserve, Grant>, Revoke, kNothing},
      {"SleepFixed", Kind::kFixed, Do<Create, Register, Reserve, RegisterPending, Grant, AllocateSmall>, Sleep},
      {"WakeFixed", Kind::kFixed, Do<Create, Reserve, Grant, AllocateSmall, Register, Sleep>, Wake},
      {"CaptureFixed", Kind::kFixed, Do<Create, Reserve>, BeginCapture, kNothing},
      {"GrowFixedInCapture", Kind::kFixed, Do<Create, BeginCapture>, AllocateCaptured},
      {"ReleaseStream", Kind::kFixed, Do<Create, AllocateAll, Free>, ReleaseStream, kNothing},
      {"CloseFixed", Kind::kFixed, Do<Create, Reserve, Register>, Close, kNothing},
      {"CreateExpandable", Kind::kExpandable, Nothing, Create},
      {"GrowExpandable", Kind::kExpandable, Do<Create, AllocateSmall>, Grow},
      {"ReserveExpandable", Kind::kExpandable, Do<Create, AllocateSmall>, Reserve},
      {"ShareExpandable", Kind::kExpandable, Do<Create, Fill, Free>, AllocateAllElsewhere, kNothing, kDoesNot},
      {"TrimExpandable", Kind::kExpandable, Do<Create, Reserve>, Trim, kNothing},
      {"GrantExpandable", Kind::kExpandable, Do<Create, Reserve>, Grant},
      {"RevokeExpandable", Kind::kExpandable, Do<Create, Reserve, Grant>, Revoke, kNothing},
      {"SleepExpandable", Kind::kExpandable, Do<Create, Reserve, AllocateSmall>, Sleep},
      {"WakeExpandable", Kind::kExpandable, Do<Create, Reserve, AllocateSmall, Sleep>, Wake},
      {"GrowExpandableInCapture", Kind::kExpandable, Do<Create, BeginCapture>, AllocateCaptured, kBooks},
      {"CloseExpandable", Kind::kExpandable, Do<Create, Reserve>, Close, kNothing},
      {"CreateSymmetric", Kind::kSymmetric, Nothing, Create},
      {"ReserveSymmetric", Kind::kSymmetric, Do<Create, Register>, Reserve},
      {"ReserveBothSymmetric", Kind::kSymmetric, Do<CreateBoth, RegisterBoth>, ReserveBoth},
      {"RegisterSymmetric", Kind::kSymmetric, Do<Create, Reserve>, Register, kBooks},
      {"DeregisterSymmetric", Kind::kSymmetric, Do<Create, Reserve, Register>, Deregister, kNothing},
      {"TrimSymmetric", Kind::kSymmetric, Do<Create, Reserve>, Trim, kNothing},
      {"ReclaimSymmetric", Kind::kSymmetric, Do<Create, Reserve, Record, Free>, Reclaim, kNothing},
      {"VerifySymmetric", Kind::kSymmetric, Do<Create, Reserve>, Verify},
      {"SleepSymmetric", Kind::kSymmetric, Do<Create, Reserve, Register, AllocateSmall>, Sleep},
      {"WakeSymmetric", Kind::kSymmetric, Do<Create, Reserve, Register, AllocateSmall, Sleep>, Wake},
      {"CaptureSymmetric", Kind::kSymmetric, Do<Create, Reserve>, BeginCapture, kNothing},
      {"AllocateSymmetricInCapture", Kind::kSymmetric, Do<Create, Reserve, AllocateAll, Free, Reclaim, BeginCapture>,
       AllocateCaptured, kNothing, kDoesNot},
      {"CloseSymmetric", Kind::kSymmetric, Do<Create, Reserve, Register>, Close, kNothing},
      {"Rehome", Kind::kSymmetric, Do<Create, Reserve, LeaveHome>, Rehome, kNothing},
  };
}

constexpr const char* kCalls[] = {
#define COMMPOOL_CUDA(name, version) #name,
#define COMMPOOL_NCCL(name, version) #name,
#include "src/library/driver/cuda_functions.inc"
#include "src/library/driver/nccl_functions.inc"
#undef COMMPOOL_CUDA
#undef COMMPOOL_NCCL
};

// Calls that may fail while the operation succeeds.
const std::set<std::string> kSilent = {
    // Questions: an unknown answer counts as "missing", or as "captures", and is asked again where it matters.
    "cuDeviceGetAttribute", "cuDeviceGetPCIBusId", "cuDeviceCanAccessPeer", "cuMulticastGetGranularity", "cuMemGetInfo",
    "cuCtxGetDevice", "cuEventQuery", "ncclCommGetAsyncError", "ncclGetLastError", "ncclGetErrorString",
    "cuGetErrorName", "cuGetErrorString", "cuStreamGetId", "cuStreamIsCapturing",
    // A call that needs the context fails then. So do calls that a capture forbids, where a capture is open.
    "cuCtxGetCurrent", "cuCtxSetCurrent", "cuThreadExchangeStreamCaptureMode",
    // The pool then makes a less shareable handle.
    "cuMemCreate",
    // The test's own calls.
    "cuStreamBeginCapture"};

bool Releases(const std::string& call) {
  return call.find("Destroy") != std::string::npos || call.find("Release") != std::string::npos ||
         call.find("Free") != std::string::npos || call.find("Unmap") != std::string::npos ||
         call.find("Deregister") != std::string::npos;
}

class FailingOperations : public DriverTest, public ::testing::WithParamInterface<Operation> {
 protected:
  void SetUp() override {
    COMMPOOL_REQUIRE_EMULATOR("calls fail");
    AllowLeak("");  // what the driver failed to release; the operations' own leaks are checked below
  }

  // How often the operation makes each call.
  static std::map<std::string, int> CallsOf(const Operation& operation) {
    World world(operation.kind);
    ExpectOk({operation.before(world)});
    std::map<std::string, int> calls;
    for (const char* const call : kCalls) calls[call] = -static_cast<int>(CallCount(call));
    ExpectOk({operation.act(world)});
    for (const char* const call : kCalls) calls[call] += static_cast<int>(CallCount(call));
    return calls;
  }
  static void FailOnce(const Operation& operation, const std::string& call, int skip) {
    World world(operation.kind);
    ExpectOk({operation.before(world)});
    const State before = world.Look();
    const bool of_nccl = call.find("nccl") == 0;
    Status status;
    {
      const InjectedFault fault({.call = call.c_str(),
                                 .result = of_nccl ? static_cast<int>(ncclInternalError) : CUDA_ERROR_INVALID_VALUE,
                                 .skip = skip});
      ::testing::internal::CaptureStderr();
      status = operation.act(world);
    }
    const std::string told = status.message() + ::testing::internal::GetCapturedStderr();
    const bool inside_nccl = told.find("ncclAllGather") != std::string::npos;
    EXPECT_TRUE(inside_nccl || told.find(call) != std::string::npos) << "it ended with: " << told;
    if (Releases(call)) return;
    EXPECT_FALSE(status.ok()) << told;
    const State after = world.Look();
    if (operation.keeps != Keeps::kNothing) {
      EXPECT_EQ(after.books, before.books);
    }
    if (operation.keeps == Keeps::kState) {
      EXPECT_EQ(after.resources, before.resources);
    }
    if (operation.again == Again::kWorks) ExpectOk({operation.act(world)});
  }
};

TEST_P(FailingOperations, FailByTheCallsNameAndChangeNothing) {
  for (const auto& [call, count] : CallsOf(GetParam())) {
    const int times = call == "cuStreamQuery" ? std::min(count, 1) : count;  // the pool asks until the work is done
    for (int skip = 0; !kSilent.contains(call) && skip < times; ++skip) {
      SCOPED_TRACE(call + ", call " + std::to_string(skip + 1) + " of " + std::to_string(count));
      FailOnce(GetParam(), call, skip);
      if (Releases(call)) static_cast<void>(TakeReports());  // NCCL or the driver still holds these
    }
  }
}

class FailingCollectives : public FailingOperations {};

TEST_P(FailingCollectives, FailWhereTheAllGatherDoes) {
  int gathers = 0;
  {
    World world(Kind::kSymmetric);
    ExpectOk({GetParam().before(world)});
    gathers = -world.gathers();
    ExpectOk({GetParam().act(world)});
    gathers += world.gathers();
  }
  for (int skip = 0; skip < gathers; ++skip) {
    SCOPED_TRACE("gather " + std::to_string(skip + 1) + " of " + std::to_string(gathers));
    World world(Kind::kSymmetric);
    ExpectOk({GetParam().before(world)});
    const State before = world.Look();
    world.FailGatherAfter(skip);
    ExpectFailure(GetParam().act(world), StatusCode::kRemoteFailure, "the all-gather function given for agreement");
    // Rounds after the call to NCCL leave memory and registrations as they are, because other ranks may use them.
    if (GetParam().keeps != Keeps::kNothing) {
      EXPECT_EQ(world.Look().blocks(), before.blocks());
    }
  }
}

std::vector<Operation> CollectiveOperations() {
  std::vector<Operation> operations = Operations();
  std::erase_if(operations, [](const Operation& operation) { return operation.kind != Kind::kSymmetric; });
  return operations;
}

INSTANTIATE_TEST_SUITE_P(Of, FailingOperations, ::testing::ValuesIn(Operations()),
                         [](const auto& operation) { return operation.param.name; });
INSTANTIATE_TEST_SUITE_P(Of, FailingCollectives, ::testing::ValuesIn(CollectiveOperations()),
                         [](const auto& operation) { return operation.param.name; });

}  // namespace
}  // namespace commpool::internal::testing
