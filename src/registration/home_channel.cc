#include "src/registration/home_channel.h"

#include <array>
#include <chrono>
#include <cstring>
#include <optional>
#include <random>
#include <thread>

#include "src/driver/diagnosis.h"
#include "src/driver/handles.h"
#include "src/registration/tcp_channel.h"

namespace commpool {

namespace {

// What each rank sends over the communicator; only rank 0's counts. Whole 32-bit words, NCCL's ncclInt32.
struct Introduction {
  std::array<char, 48> address{};  // empty where rank 0 could not listen
  uint64_t secret = 0;
  uint64_t rank = 0;
};
static_assert(sizeof(Introduction) % sizeof(int32_t) == 0);

// Device memory and a stream for one small all-gather. Left to the process where the gather may still be running.
class Scratch {
 public:
  static Result<Scratch> Make(const Driver& driver, uint64_t bytes) {
    Scratch scratch(driver);
    Status status = CheckCuda(driver, driver.cuda.cuMemAlloc(&scratch.memory_, bytes),
                              {.call = "cuMemAlloc", .bytes = bytes, .purpose = "address exchange"});
    if (!status.ok()) return status;
    status = CheckCuda(driver, driver.cuda.cuStreamCreate(&scratch.stream_, CU_STREAM_NON_BLOCKING),
                       {.call = "cuStreamCreate", .purpose = "address exchange"});
    if (!status.ok()) return status;
    return scratch;
  }
  Scratch(Scratch&& other) noexcept
      : driver_(other.driver_),
        memory_(std::exchange(other.memory_, 0)),
        stream_(std::exchange(other.stream_, nullptr)) {}
  Scratch& operator=(Scratch&&) = delete;
  ~Scratch() {
    if (stream_ != nullptr) driver_.cuda.cuStreamDestroy(stream_);
    if (memory_ != 0) driver_.cuda.cuMemFree(memory_);
  }

  CUdeviceptr memory() const { return memory_; }
  CUstream stream() const { return stream_; }
  void LeaveToProcess() {
    memory_ = 0;
    stream_ = nullptr;
  }

 private:
  explicit Scratch(const Driver& driver) : driver_(driver) {}

  const Driver& driver_;
  CUdeviceptr memory_ = 0;
  CUstream stream_ = nullptr;
};

Status AwaitStream(const Driver& driver, Scratch& scratch, const Communicator& home, uint64_t deadline_ms) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(deadline_ms);
  for (;;) {
    const CUresult result = driver.cuda.cuStreamQuery(scratch.stream());
    if (result != CUDA_ERROR_NOT_READY) {
      return CheckCuda(driver, result, {.call = "cuStreamQuery", .device = home.device, .purpose = "address exchange"});
    }
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = driver.nccl.ncclCommGetAsyncError(home.handle, &state);
    const bool failed = asked != ncclSuccess || (state != ncclSuccess && state != ncclInProgress);
    if (failed || std::chrono::steady_clock::now() > deadline) {
      scratch.LeaveToProcess();
      if (failed) {
        return CheckNccl(driver, asked != ncclSuccess ? asked : state, {.call = "ncclAllGather", .device = home.device},
                         home.handle);
      }
      return Status(StatusCode::kDeadlineExceeded,
                    "create: rank " + std::to_string(home.rank) + " of " + std::to_string(home.ranks) + " waited " +
                        std::to_string(deadline_ms) +
                        " ms for the other ranks of the home communicator: not every rank creates the pool, or one "
                        "has another collective at this place");
    }
    std::this_thread::sleep_for(
        std::chrono::microseconds(20));  // a stream with NCCL's kernel: a host wait has no bound
  }
}

// Sends `mine` to all and returns rank 0's.
Result<Introduction> ExchangeOverHome(const Driver& driver, const Communicator& home, const Introduction& mine,
                                      uint64_t deadline_ms) {
  const uint64_t all_bytes = sizeof(Introduction) * static_cast<uint64_t>(home.ranks);
  Result<Scratch> scratch = Scratch::Make(driver, sizeof(Introduction) + all_bytes);
  if (!scratch.ok()) return scratch.status();
  const CUdeviceptr received = scratch->memory();
  const CUdeviceptr sent = received + all_bytes;
  Status status = CheckCuda(driver, driver.cuda.cuMemcpyHtoDAsync(sent, &mine, sizeof(mine), scratch->stream()),
                            {.call = "cuMemcpyHtoDAsync", .device = home.device, .bytes = sizeof(mine)});
  if (!status.ok()) return status;

  ncclResult_t result = ncclSuccess;
  {
    ContextGuard keep_current(driver);
    result =
        driver.nccl.ncclAllGather(reinterpret_cast<const void*>(sent), reinterpret_cast<void*>(received),
                                  sizeof(Introduction) / sizeof(int32_t), ncclInt32, home.handle, scratch->stream());
  }
  status = AwaitCommunicator(driver, home, result, "ncclAllGather", sizeof(mine), deadline_ms);
  if (!status.ok()) {
    scratch->LeaveToProcess();
    return status;
  }
  status = AwaitStream(driver, *scratch, home, deadline_ms);
  if (!status.ok()) return status;

  Introduction first;
  status = CheckCuda(driver, driver.cuda.cuMemcpyDtoH(&first, received, sizeof(first)),
                     {.call = "cuMemcpyDtoH", .device = home.device, .bytes = sizeof(first)});
  if (!status.ok()) return status;
  return first;
}

uint64_t MakeSecret() {
  std::random_device random;
  return (uint64_t{random()} << 32) | random();
}

}  // namespace

Result<std::unique_ptr<AgreementChannel>> OpenHomeChannel(const Driver& driver, const Communicator& home,
                                                          uint64_t deadline_ms) {
  if (home.ranks == 1) return MakeSelfChannel();
  Introduction mine;
  mine.rank = static_cast<uint64_t>(home.rank);
  std::optional<Listener> listener;
  Status listening;
  if (home.rank == 0) {
    Result<Listener> opened = Listener::Open();
    listening = opened.status();
    if (opened.ok()) {
      mine.secret = MakeSecret();
      std::strncpy(mine.address.data(), opened->address().c_str(), mine.address.size() - 1);
      listener = std::move(*opened);
    }
  }
  Result<Introduction> first = ExchangeOverHome(driver, home, mine, deadline_ms);
  if (!first.ok()) return first.status();
  if (first->address[0] == '\0') {
    return Status(StatusCode::kRemoteFailure, "create: rank 0 could not listen for the agreement channel" +
                                                  (listening.ok() ? std::string() : ": " + listening.message()));
  }
  const TcpChannelOptions options{.rank = home.rank,
                                  .ranks = home.ranks,
                                  .deadline = std::chrono::milliseconds(deadline_ms),
                                  .secret = first->secret};
  if (listener) return AcceptTcpChannel(options, std::move(*listener));
  return ConnectTcpChannel(options, std::string(first->address.data()));
}

}  // namespace commpool
