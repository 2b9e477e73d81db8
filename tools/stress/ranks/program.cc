#include "tools/stress/ranks/program.h"

#include <algorithm>
#include <iterator>
#include <regex>
#include <utility>

#include "src/library/base/try.h"
#include "src/library/driver/diagnosis.h"
#include "src/library/pool/symmetric/symmetric_mode.h"
#include "tools/stress/captured_block.h"
#include "tools/stress/emulated_run.h"
#include "tools/stress/ranks/record.h"
#include "tools/stress/ranks/recovery.h"
#include "tools/stress/ranks/socket_points.h"

namespace commpool::cli::stress_ranks {

namespace {

constexpr uint64_t kLimitBytes = 256 << 20;
constexpr int kBurst = 72;  // allocations: the library publishes every 64 calls of a sequence

// Whether ranks without a fault can continue after it: nobody is lost.
bool GoesOn(const Status& status) {
  return status.ok() || status.code() == StatusCode::kOutOfMemory || status.code() == StatusCode::kExhausted;
}

}  // namespace

std::string StateOf(const std::vector<PoolInUse>& pools) {
  std::string state;
  for (const PoolInUse& pool : pools) {
    if (pool.pool == nullptr) continue;
    const commpool_statistics statistics = pool.pool->Statistics();
    state += (state.empty() ? "" : ";") + std::to_string(statistics.reserved_bytes.current) + "/" +
             std::to_string(statistics.reserved_segments.current) + "/" +
             std::to_string(statistics.registered_segments) + "/" + std::to_string(statistics.allocated_bytes.current) +
             "/" + std::to_string(statistics.allocated_blocks.current);
  }
  return state;
}

Program::Program(const internal::Driver& driver, std::shared_ptr<const internal::Driver> faulty_driver,
                 const Schedule& schedule, const ProgramOptions& options, Control& control, ArmedFault& armed)
    : driver_(driver),
      faulty_driver_(std::move(faulty_driver)),
      schedule_(schedule),
      options_(options),
      control_(control),
      armed_(armed),
      before_(EmulatorLines(driver, "commpoolEmulatorLeaks")),
      communicators_(driver, schedule, options.rank, control),
      pools_(schedule.pools.size()) {}

Status Program::Check(CUresult result, const char* call) const {
  return internal::CheckCuda(driver_, result, {.call = call, .device = options_.rank});
}

Status Program::Start() {
  context_ = COMMPOOL_TRY(internal::PrimaryContext::Retain(driver_, options_.rank));
  Status status = Check(driver_.cuda.cuCtxSetCurrent(context_.get()), "cuCtxSetCurrent");
  for (CUstream& stream : streams_) {
    if (status.ok()) status = Check(driver_.cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  }
  if (status.ok()) status = communicators_.Make();
  if (status.ok()) runtime_ = std::make_unique<internal::Runtime>(faulty_driver_);
  return status;
}

void Program::Run() {
  if (!RunSteps()) Recovery(*runtime_, communicators_, schedule_, options_.rank, pools_, control_).Run();
  End();
}

bool Program::RunSteps() {
  const std::vector<Step> steps = schedule_.StepsOf(options_.rank);
  for (size_t number = 0; number < steps.size(); ++number) {
    const Step& step = steps[number];
    if (!schedule_.Takes(options_.rank, step)) continue;
    for (const Fault& fault : schedule_.faults) {
      if (fault.victim == options_.rank && fault.step == number) armed_.Arm(fault);
    }
    armed_.Reach(Point::kBetween);
    PlantBefore(number);
    BeginCallOnSockets();
    call_began_ns_.store(NowNanoseconds());
    control_.Send(BeginLine(number));
    const Status status = WithPlantedName(Do(step), step);
    call_began_ns_.store(0);
    control_.Send(EndLine(number, status, StateOf(pools_)));
    armed_.ActNow();
    if (!GoesOn(status)) return false;
  }
  return true;
}

Status Program::Do(const Step& step) {
  internal::Pool* const pool = pools_[step.pool].pool.get();
  switch (step.action) {
    case Action::kCreate:
      return Create(step);
    case Action::kReserve:
      return pool->mode().Reserve(step.bytes);
    case Action::kAllocate:
      return Allocate(step);
    case Action::kFree:
      return Free(step);
    case Action::kRecord:
      return Record(step);
    case Action::kReduce:
      return Reduce(step);
    case Action::kBurst:
      return Burst(step);
    case Action::kReclaim:
      return pool->mode().Reclaim().status();
    case Action::kTrim:
      return pool->Trim(step.bytes).status();
    case Action::kVerify:
      return pool->mode().AsSymmetric()->Verify();
    case Action::kRegister:
      return pool->mode().RegisterWith(communicators_.Of(Home::kSecond));
    case Action::kDeregister:
      return pool->mode().Deregister(communicators_.Of(Home::kSecond));
    case Action::kCapture:
      return CaptureAndReplay(driver_, *runtime_, pools_[step.pool].handle, streams_[0], step.bytes);
    case Action::kReplaceStream:
      return ReplaceStream();
    case Action::kClose:
      return pool->Close();
  }
  return Status();
}

Status Program::Create(const Step& step) {
  internal::PoolConfiguration configuration;
  configuration.name = "pool " + std::to_string(step.pool);
  configuration.streams = internal::Streams::kOutlive;
  configuration.backing.placement.device = options_.rank;
  configuration.home = communicators_.Of(schedule_.pools[step.pool]);
  configuration.limit_bytes = kLimitBytes;
  configuration.deadline_ms = options_.deadline_ms;
  Result<internal::PoolHandle> handle = runtime_->CreatePool(std::move(configuration));
  if (!handle.ok()) return handle.status();
  pools_[step.pool] = {.handle = *handle, .pool = runtime_->pools().Find(*handle).value(), .blocks = {}};
  return Status();
}

Status Program::Allocate(const Step& step) {
  Result<CUdeviceptr> address = runtime_->AllocateFrom(pools_[step.pool].handle, step.bytes, streams_[0]);
  pools_[step.pool].blocks.push_back(address.ok() ? *address : 0);
  return address.status();
}

Status Program::Free(const Step& step) {
  const CUdeviceptr block = std::exchange(pools_[step.pool].blocks[step.block], 0);
  return block == 0 ? Status() : runtime_->Free(block);
}

Status Program::Record(const Step& step) {
  const CUdeviceptr block = pools_[step.pool].blocks[step.block];
  if (block == 0) return Status();
  COMMPOOL_TRY(Check(driver_.cuda.cuStreamSynchronize(streams_[0]), "cuStreamSynchronize"));
  COMMPOOL_TRY(Check(driver_.cuda.cuMemsetD8Async(block, 1, 1, streams_[1]), "cuMemsetD8Async"));
  return runtime_->RecordStream(block, streams_[1]);
}

Status Program::Reduce(const Step& step) {
  const CUdeviceptr block = pools_[step.pool].blocks[step.block];
  if (block == 0) return Status();
  COMMPOOL_TRY(Check(driver_.cuda.cuStreamSynchronize(streams_[1]), "cuStreamSynchronize"));
  ncclComm_t const communicator = communicators_.Of(schedule_.pools[step.pool]);
  void* const memory = reinterpret_cast<void*>(block);
  ncclResult_t result = driver_.nccl.ncclAllReduce(memory, memory, 1, ncclInt8, ncclSum, communicator, streams_[0]);
  while (result == ncclInProgress) {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = driver_.nccl.ncclCommGetAsyncError(communicator, &state);
    result = asked == ncclSuccess ? state : asked;
  }
  Status status =
      internal::CheckNccl(driver_, result, {.call = "ncclAllReduce", .device = options_.rank}, communicator);
  return status.ok() ? Check(driver_.cuda.cuStreamSynchronize(streams_[0]), "cuStreamSynchronize") : status;
}

Status Program::Burst(const Step& step) {
  for (int count = 0; count < kBurst; ++count) {
    CUdeviceptr address = COMMPOOL_TRY(runtime_->AllocateFrom(pools_[step.pool].handle, step.bytes, streams_[0]));
    COMMPOOL_TRY(runtime_->Free(address));
  }
  return Status();
}

Status Program::ReplaceStream() {
  COMMPOOL_TRY(runtime_->ReleaseStream(streams_[1]));
  COMMPOOL_TRY(Check(driver_.cuda.cuStreamDestroy(streams_[1]), "cuStreamDestroy"));
  return Check(driver_.cuda.cuStreamCreate(&streams_[1], CU_STREAM_NON_BLOCKING), "cuStreamCreate");
}

// The planted fault: puts this rank, by its number in the pool's home, in place of the rank that the error names.
Status Program::WithPlantedName(const Status& status, const Step& step) const {
  if (options_.plant != Plant::kWrongName || status.ok()) return status;
  const std::vector<int> home = schedule_.HomeOf(step.pool, options_.rank);
  const auto place = std::find(home.begin(), home.end(), options_.rank) - home.begin();
  static const std::regex kNames(R"(\branks? \d+(?:(?:, | and )\d+)*)");
  return Status(status.code(), std::regex_replace(status.message(), kNames, "rank " + std::to_string(place)));
}

void Program::PlantBefore(size_t step) {
  const std::vector<Step>& steps = schedule_.steps;
  const bool grown = steps[step].action == Action::kReserve;
  if (options_.plant == Plant::kNone || !grown) return;
  if (options_.plant == Plant::kDroppedVerdict || options_.plant == Plant::kEndlessWait) {
    constexpr uint64_t kBeyondDeadlines = 3000;
    PlantInSockets(options_.plant, std::chrono::milliseconds(options_.deadline_ms + kBeyondDeadlines));
  }
  if (options_.plant == Plant::kUnequalState && pools_[steps[step].pool].pool->Statistics().registered_segments > 0) {
    static_cast<void>(runtime_->AllocateFrom(pools_[steps[step].pool].handle, 1, streams_[0]));
  }
}

void Program::End() {
  for (const CUstream stream : streams_) static_cast<void>(runtime_->ReleaseStream(stream));
  for (PoolInUse& pool : pools_) {
    if (pool.pool == nullptr) continue;
    pool.pool.reset();
    static_cast<void>(runtime_->DestroyPool(pool.handle));
  }
  communicators_.Destroy();
  runtime_.reset();
  for (const CUstream stream : streams_) driver_.cuda.cuStreamDestroy(stream);
  if (options_.plant == Plant::kLeak) {
    CUdeviceptr kept = 0;
    driver_.cuda.cuMemAlloc(&kept, 1);
  }
  context_ = {};
  std::vector<std::string> now = EmulatorLines(driver_, "commpoolEmulatorLeaks");
  std::sort(now.begin(), now.end());
  std::sort(before_.begin(), before_.end());
  std::vector<std::string> left;
  std::set_difference(now.begin(), now.end(), before_.begin(), before_.end(), std::back_inserter(left));
  for (const std::string& report : EmulatorLines(driver_, "commpoolEmulatorReports")) left.push_back(report);
  for (const std::string& line : left) control_.Send(LeftLine(line));
  control_.Send(CompleteLine());
}

}  // namespace commpool::cli::stress_ranks
