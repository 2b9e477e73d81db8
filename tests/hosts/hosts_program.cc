// The main job on several hosts, one rank for each process, as hosts_test.py starts it.
// usage: hosts_program live|mpi|die|absent|loopback|sleep|captured|die_asleep
//   mpi        as live, and the ranks agree over MPI
//   die        the last rank is killed in the middle of a reserve
//   absent     the ranks agree over MPI, and the last one does not come to a reserve
//   loopback   rank 0 is told to listen where only its own host reaches it
//   sleep      the pool sleeps, the last rank has no memory to wake at first, and all wake
//   captured   the pool sleeps under a graph with an all-gather of its windows, or, refused, without the graph
//   die_asleep the last rank is killed where the others wake
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "commpool/mpi.h"
#include "src/library/base/bytes.h"
#include "src/library/base/socket.h"
#include "src/library/driver/handles.h"
#include "src/library/pool/runtime.h"
#include "tools/common/sleep_alone.h"

namespace commpool::internal {
namespace {

constexpr uint64_t kDeadlineMs = 10000;
constexpr std::chrono::milliseconds kShort{1000};

std::shared_ptr<const Driver> OpenEmulator() {
  return LoadDriver(LoaderOptionsFromEnvironment(DriverChoice::kEmulated).value()).value();
}

class RankOfJob {
 public:
  RankOfJob() {
    MPI_Init(nullptr, nullptr);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
    MPI_Comm host = MPI_COMM_NULL;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_rank(host, &device_);
    MPI_Comm_free(&host);
    context_ = PrimaryContext::Retain(*driver_, device_).value();
    driver_->cuda.cuCtxSetCurrent(context_.get());
    driver_->cuda.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING);
    home_ = Connect(0);
    second_ = Connect(1);
    TellWhere();
  }

  // Every step of a pool's life. Throws where something is wrong.
  void Live() {
    MakePool();
    RegisterAndReserve();
    const ScopeHandle scope = runtime_.scopes().Begin({.pool = pool_}).value();
    Sum(300'000);
    pool_->mode().Reserve(16 * kMiB).or_throw();  // it grows
    Sum(3'000'001);
    runtime_.scopes().End(scope).or_throw();
    const uint64_t windows = pool_->Statistics().registered_segments;
    pool_->mode().Deregister(second_).or_throw();  // while it has segments
    pool_->Trim(0).value();
    EndPool();
    std::printf("rank %d: every sum is right, %d segments registered, closed\n", rank_, static_cast<int>(windows));
    for (const ncclComm_t communicator : {second_, home_}) driver_->nccl.ncclCommDestroy(communicator);
    driver_->cuda.cuStreamDestroy(stream_);
    agreement_.reset();
    MPI_Finalize();
  }

  [[noreturn]] void Sleep() {
    MakePool();
    pool_->mode().RegisterWith(second_).or_throw();
    const CUdeviceptr block = FallAsleep();
    if (IsLast()) driver_->cuda.cuMemCreate = [](auto...) { return CUDA_ERROR_OUT_OF_MEMORY; };
    TellOf("wake", WakeAlone(*pool_));
    driver_->cuda.cuMemCreate = usual_.cuda.cuMemCreate;
    WakeAlone(*pool_).or_throw();
    CheckHeld(block);
    pool_->Free(block).or_throw();
    pool_->mode().Reclaim().value();
    const ScopeHandle scope = runtime_.scopes().Begin({.pool = pool_}).value();
    Sum(300'000);
    runtime_.scopes().End(scope).or_throw();
    std::printf("rank %d: slept and woke, %d segments registered\n", rank_,
                static_cast<int>(pool_->Statistics().registered_segments));
    EndPool();
    Leave();
  }

  [[noreturn]] void SleepUnderAGraph() {
    const CudaDriver& cuda = driver_->cuda;
    MakePool();
    RegisterAndReserve();
    const CUdeviceptr block = pool_->Allocate(kMiB, KeyOfStream(stream_, device_)).value();
    CUgraphExec graph = CaptureGather(block);
    ReplayGather(graph, block, 1);
    const Status slept = SleepAlone(*pool_, {});
    if (!slept.ok()) {
      TellOf("sleep", slept);
      ReplayGather(graph, block, 2);
      SleepAlone(*pool_, {.graphs = LiveGraphs::kDiscarded}).or_throw();
    }
    WakeAlone(*pool_).or_throw();
    if (!slept.ok()) {
      cuda.cuGraphExecDestroy(graph);
      graph = CaptureGather(block);
    }
    ReplayGather(graph, block, 3);
    cuda.cuGraphExecDestroy(graph);
    std::printf("rank %d: gathered after a sleep, %s\n", rank_, slept.ok() ? "by the graph" : "by another graph");
    pool_->Free(block).or_throw();
    EndPool();
    Leave();
  }

  [[noreturn]] void DieAsleep() {
    std::signal(SIGTERM, SIG_IGN);  // mpirun sends it after a rank's death
    MakePool();
    const CUdeviceptr block = FallAsleep();
    if (IsLast()) std::raise(SIGKILL);
    TellOf("wake", WakeAlone(*pool_));
    AbandonHome();
    WakeAlone(*pool_).or_throw();
    CheckHeld(block);
    std::printf("rank %d: has what it held\n", rank_);
    std::fflush(stdout);
    _exit(0);  // MPI cannot finalize without the lost rank
  }

  void LiveOverMpi() {
    agreement_ = std::make_unique<MpiAgreement>(MPI_COMM_WORLD);
    Live();
  }

  [[noreturn]] void Absent() {
    agreement_ = std::make_unique<MpiAgreement>(MPI_COMM_WORLD, kShort);
    MakePool();
    const Status status = IsLast() ? Status() : pool_->mode().Reserve(2 * kMiB);
    if (!status.ok()) std::printf("rank %d: %s\n", rank_, status.message().c_str());
    Leave();
  }

  [[noreturn]] void Loopback() {
    setenv("NCCL_SOCKET_IFNAME", "=lo", 1);
    std::printf("rank %d: %s\n", rank_, runtime_.CreatePool(Configured()).status().message().c_str());
    Leave();
  }

  [[noreturn]] void Die() {
    std::signal(SIGTERM, SIG_IGN);  // mpirun sends it after a rank's death
    MakePool();
    if (IsLast()) driver_->cuda.cuMemCreate = [](auto...) { return static_cast<CUresult>(std::raise(SIGKILL)); };
    const Status status = pool_->mode().Reserve(2 * kMiB);
    AbandonHome();
    TellOf("reserve", status);
    _exit(status.code() == StatusCode::kRemoteFailure ? 0 : 1);  // MPI cannot finalize without the lost rank
  }

 private:
  bool IsLast() const { return rank_ == ranks_ - 1; }

  void MakePool() { pool_ = runtime_.pools().Find(runtime_.CreatePool(Configured()).value()).value(); }

  void RegisterAndReserve() {
    pool_->mode().RegisterWith(second_).or_throw();
    pool_->mode().Reserve(2 * kMiB).or_throw();
  }

  void EndPool() {
    pool_->mode().Deregister(second_).or_throw();
    pool_->Close().or_throw();
    runtime_.DestroyPool(pool_->handle()).or_throw();
  }

  void AbandonHome() {
    pool_->mode().AbandonCommunicator(home_, CommunicatorLife::kEnded).or_throw();
    for (const ncclComm_t communicator : {second_, home_}) driver_->nccl.ncclCommAbort(communicator);
  }

  void TellOf(const char* call, const Status& status) const {
    std::printf("rank %d: %s failed (%d): %s\n", rank_, call, static_cast<int>(status.code()),
                status.message().c_str());
    std::fflush(stdout);
  }

  // With a block that holds the rank's number.
  CUdeviceptr FallAsleep() const {
    pool_->mode().Reserve(2 * kMiB).or_throw();
    const CUdeviceptr block = pool_->Allocate(kMiB, KeyOfStream(stream_, device_)).value();
    driver_->cuda.cuMemcpyHtoD(block, &rank_, sizeof(rank_));
    SleepAlone(*pool_, {.keep = Keep::kHost, .graphs = LiveGraphs::kDiscarded}).or_throw();
    return block;
  }

  void CheckHeld(CUdeviceptr block) const {
    int held = -1;
    driver_->cuda.cuMemcpyDtoH(&held, block, sizeof(held));
    if (held != rank_) Status(StatusCode::kInternal, "a block lost what it held").or_throw();
  }

  static constexpr size_t kGathered = 1000;  // floats of each rank, which its part of the block holds

  // In place, as an all-gather of a sharded parameter.
  CUgraphExec CaptureGather(CUdeviceptr block) const {
    const CudaDriver& cuda = driver_->cuda;
    CUgraph graph = nullptr;
    CUgraphExec executable = nullptr;
    auto* const all = reinterpret_cast<float*>(block);
    cuda.cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_RELAXED);
    CheckNccl(driver_->nccl.ncclAllGather(all + static_cast<size_t>(rank_) * kGathered, all, kGathered, ncclFloat,
                                          home_, stream_));
    cuda.cuStreamEndCapture(stream_, &graph);
    cuda.cuGraphInstantiateWithFlags(&executable, graph, 0);
    cuda.cuGraphDestroy(graph);
    return executable;
  }

  void ReplayGather(CUgraphExec graph, CUdeviceptr block, int seed) const {
    const CudaDriver& cuda = driver_->cuda;
    const auto part = [&](int rank) { return block + static_cast<size_t>(rank) * kGathered * sizeof(float); };
    std::vector<float> values(kGathered, static_cast<float>(10 * seed + rank_));
    const size_t bytes = kGathered * sizeof(float);
    cuda.cuMemcpyHtoDAsync(part(rank_), values.data(), bytes, stream_);
    cuda.cuGraphLaunch(graph, stream_);
    cuda.cuStreamSynchronize(stream_);
    for (int rank = 0; rank < ranks_; ++rank) {
      cuda.cuMemcpyDtoH(values.data(), part(rank), bytes);
      if (values == std::vector<float>(kGathered, static_cast<float>(10 * seed + rank))) continue;
      Status(StatusCode::kInternal, "the part of rank " + std::to_string(rank) + " is wrong").or_throw();
    }
  }

  // At the same time, although pools and communicators can no longer end in order.
  [[noreturn]] static void Leave() {
    std::fflush(stdout);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    _exit(0);
  }

  // The ranks from `first` on; null on the others.
  ncclComm_t Connect(int first) {
    ncclUniqueId id = {};
    if (rank_ == first) CheckNccl(driver_->nccl.ncclGetUniqueId(&id));
    MPI_Bcast(&id, sizeof(id), MPI_BYTE, first, MPI_COMM_WORLD);
    if (rank_ == first) TellIdAddress(id);
    ncclComm_t communicator = nullptr;
    if (rank_ >= first) {
      CheckNccl(driver_->nccl.ncclCommInitRank(&communicator, ranks_ - first, id, rank_ - first));
    }
    return communicator;
  }

  static void CheckNccl(ncclResult_t result) {
    if (result == ncclSuccess) return;
    Status(StatusCode::kCommunicatorError, "NCCL answers " + std::to_string(static_cast<int>(result))).or_throw();
  }

  void TellWhere() const {
    std::array<char, 64> host{};
    gethostname(host.data(), host.size() - 1);
    const std::string address = Listener::Open().value().address();
    std::printf("rank %d: %s, device %d, listens at %s\n", rank_, host.data(), device_, address.c_str());
  }

  // The emulated NCCL's id holds the address of its root as text.
  void TellIdAddress(const ncclUniqueId& id) const {
    std::string printable;
    for (const char letter : id.internal) printable += letter >= '.' && letter <= ':' ? letter : ' ';
    std::printf("rank %d: NCCL's root is at %s\n", rank_, printable.c_str());
  }

  PoolConfiguration Configured() const {
    PoolConfiguration configuration;
    configuration.name = "hosts";
    configuration.streams = Streams::kOutlive;
    configuration.backing.placement.device = device_;
    configuration.home = home_;
    configuration.deadline_ms = kDeadlineMs;
    if (agreement_ != nullptr) {
      const Agreement agreement = *agreement_;
      configuration.all_gather = agreement.all_gather;
      configuration.all_gather_context = agreement.context;
    }
    return configuration;
  }

  // All-reduces a scoped block and checks every element.
  void Sum(size_t count) {
    const CudaDriver& cuda = driver_->cuda;
    const size_t bytes = count * sizeof(float);
    const CUdeviceptr block = runtime_.Allocate(device_, bytes, stream_).value();
    runtime_.windows().Find(home_, block).value();  // fails if the block is in no window
    std::vector<float> values(count);
    for (size_t index = 0; index < count; ++index) values[index] = static_cast<float>(index % 16 + rank_);
    cuda.cuMemcpyHtoDAsync(block, values.data(), bytes, stream_);
    void* const data = reinterpret_cast<void*>(block);
    CheckNccl(driver_->nccl.ncclAllReduce(data, data, count, ncclFloat, ncclSum, home_, stream_));
    cuda.cuStreamSynchronize(stream_);
    std::fill(values.begin(), values.end(), -1.0f);
    cuda.cuMemcpyDtoH(values.data(), block, bytes);
    for (size_t index = 0; index < count; ++index) {
      const auto expected = static_cast<float>(ranks_ * static_cast<int>(index % 16) + ranks_ * (ranks_ - 1) / 2);
      if (values[index] == expected) continue;
      Status(StatusCode::kInternal, "element " + std::to_string(index) + " of the sum is wrong").or_throw();
    }
    runtime_.Free(block).or_throw();
    pool_->mode().Reclaim().value();
  }

  const Driver usual_ = *OpenEmulator();
  const std::shared_ptr<Driver> driver_ = std::make_shared<Driver>(usual_);  // this rank's own, which may fail
  int rank_ = 0;
  int ranks_ = 1;
  int device_ = 0;
  PrimaryContext context_;
  CUstream stream_ = nullptr;
  ncclComm_t home_ = nullptr;
  ncclComm_t second_ = nullptr;
  std::unique_ptr<MpiAgreement> agreement_;
  Runtime runtime_{driver_};
  std::shared_ptr<Pool> pool_;
};

}  // namespace
}  // namespace commpool::internal

int main(int argc, char** argv) {
  using commpool::internal::RankOfJob;
  const std::map<std::string, std::function<void(RankOfJob&)>> modes = {{"live", &RankOfJob::Live},
                                                                        {"mpi", &RankOfJob::LiveOverMpi},
                                                                        {"die", &RankOfJob::Die},
                                                                        {"absent", &RankOfJob::Absent},
                                                                        {"loopback", &RankOfJob::Loopback},
                                                                        {"sleep", &RankOfJob::Sleep},
                                                                        {"captured", &RankOfJob::SleepUnderAGraph},
                                                                        {"die_asleep", &RankOfJob::DieAsleep}};
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  try {
    RankOfJob rank;
    modes.at(argc > 1 ? argv[1] : "live")(rank);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  return 0;
}
