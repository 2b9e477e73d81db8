#include "tests/registration/failing_world.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "src/library/base/bytes.h"
#include "src/library/pool/group_calls.h"
#include "src/library/pool/symmetric/symmetric_mode.h"
#include "tools/common/pool_invariants.h"
#include "tools/common/sleep_alone.h"

namespace commpool::internal::testing {

namespace {

constexpr uint64_t kHalf = 16 * kMiB;
constexpr uint64_t kAll = 2 * kHalf;  // the most that a pool may have

}  // namespace

World::World(Kind kind)
    : kind_(kind),
      peer_(DeviceCountOfTests() > 1 ? PrimaryContext::Retain(*SharedDriver(), 1).value() : PrimaryContext()),
      current_(*SharedDriver(), group_[0].context),
      second_(group_.ConnectFrom(0)),
      runtime_(std::make_unique<Runtime>(SharedDriver())) {
  EXPECT_EQ(SharedDriver()->cuda.cuStreamCreate(&other_stream_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
}

World::~World() {
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

void World::End(std::shared_ptr<Pool>& pool) {
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

int World::Gather(const void* sent, void* received, size_t bytes, void* context) {
  World& world = *static_cast<World*>(context);
  if (world.gathers_++ == world.fail_at_) return 1;
  std::memcpy(received, sent, bytes);
  return 0;
}

Status World::Create() {
  const Result<std::shared_ptr<Pool>> made = Make("failing");
  if (made.ok()) pool_ = *made;
  return made.status();
}

Status World::CreateBoth() {
  const Status first = Create();
  if (!first.ok()) return first;
  const Result<std::shared_ptr<Pool>> made = Make("beside");
  if (made.ok()) beside_ = *made;
  return made.status();
}

Result<std::shared_ptr<Pool>> World::Make(const char* name) {
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

Status World::Allocate(uint64_t bytes, CUstream stream) {
  const Result<CUdeviceptr> block = runtime_->AllocateFrom(pool_->handle(), bytes, stream);
  if (block.ok()) blocks_.push_back(*block);
  return block.status();
}

Status World::RecordLast() { return runtime_->RecordStream(blocks_.back(), other_stream_); }

Status World::Free() {
  const CUdeviceptr block = blocks_.back();
  blocks_.pop_back();
  return runtime_->Free(block);
}

Status World::BeginCapture() {
  EXPECT_EQ(SharedDriver()->cuda.cuStreamBeginCapture(stream(), CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  const Result<CaptureHandle> begun = runtime_->BeginCapture(pool_->handle(), stream());
  if (begun.ok()) {
    capture_ = *begun;
  } else {
    EndCapture();
  }
  return begun.status();
}

void World::EndCapture() {
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

Status World::ReleaseStream() { return runtime_->ReleaseStream(other_stream_); }

State World::Look() const {
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

namespace {

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

}  // namespace

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

}  // namespace commpool::internal::testing
