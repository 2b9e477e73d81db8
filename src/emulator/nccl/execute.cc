// The part of a communicator that runs on its progress thread.
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "src/emulator/nccl/communicator.h"
#include "src/emulator/nccl/exchange.h"
#include "src/emulator/nccl/header_message.h"
#include "src/emulator/nccl/log.h"
#include "src/emulator/nccl/reduction.h"
#include "src/emulator/nccl/releases.h"
#include "src/emulator/nccl/ring.h"

namespace commpool::internal::emulated_nccl {

namespace {

// NCCL 2.28.9 on H200s: a symmetric kernel never learns that a rank is lost. It spins until the process ends.
// ncclCommAbort or a revoke waits for it, or does not help. Copies wait on their stream for values that the lost rank
// would write, in every release (src/ce_coll.cc; read, not tried).
bool NeverEnds(const PendingCollective& pending, const Status& status) {
  if (status.code() != StatusCode::kRemoteFailure || pending.plan.route == Route::kBuffers) return false;
  return pending.plan.route == Route::kCopyEngines || ClaimedVersion() < kFirstThatAbortsSymmetricKernels;
}

[[noreturn]] void WaitForTheEndOfTheProcess() {
  for (;;) pause();
}

}  // namespace

void EmulatedCommunicator::Run() {
  while (std::unique_ptr<PendingCollective> pending = queue_.TakeNext()) {
    Execute(*pending);
    queue_.Finish();
  }
}

void EmulatedCommunicator::Execute(PendingCollective& pending) {
  double end_us = pending.start_us;
  const auto ended_early = [&] { return aborted_.load() || stopped_.load(); };
  bool succeeded = ended_early();
  CUresult failure = CUDA_ERROR_LAUNCH_FAILED;
  if (!succeeded && async_error() == ncclSuccess && IsStale(pending)) {
    async_error_.store(ncclUnhandledCudaError);
    failure = CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  if (!succeeded && async_error() == ncclSuccess) {
    const Status status = RunCollective(pending, &end_us);
    succeeded = status.ok() || ended_early();
    if (NeverEnds(pending, status)) {
      if (!succeeded) Fail(status, CollectiveName(pending.request.kind));
      WaitForTheEndOfTheProcess();
    }
    if (!succeeded) Fail(status, CollectiveName(pending.request.kind));
  }
  // NCCL's kernel waits for a lost rank until this rank ends its communicator. Then it ends quietly.
  if (!succeeded && async_error() == ncclRemoteError && !timed_out_.load()) {
    succeeded = queue_.WaitUntilClosed(DeadlineAfter(std::chrono::milliseconds(TimeoutMilliseconds())));
  }
  GetDriver().commpoolEmulatorComplete(pending.operation, end_us, succeeded ? CUDA_SUCCESS : failure);
}

// Reports a replay over memory that changed. Real hardware would read and write whatever is there now.
bool EmulatedCommunicator::IsStale(const PendingCollective& pending) const {
  std::string reason = WhyStale(pending.plan, pending.request);
  if (reason.empty()) reason = WhyNoMemory();
  if (reason.empty()) return false;
  const std::string details =
      "rank " + std::to_string(rank_) + " in " + CollectiveName(pending.request.kind) + ": " + reason;
  COMMPOOL_NCCL_WARN("%s", details.c_str());
  GetDriver().commpoolEmulatorReport("a collective reaches for memory where it was", details.c_str());
  return true;
}

void EmulatedCommunicator::Fail(const Status& status, const std::string& what) {
  const std::string details = "rank " + std::to_string(rank_) + " in " + what + ": " + status.message();
  COMMPOOL_NCCL_WARN("%s", details.c_str());
  if (status.code() == StatusCode::kDeadlineExceeded) {
    timed_out_.store(true);
    // The real NCCL would wait for ever.
    GetDriver().commpoolEmulatorReport("a rank is missing from a collective call", details.c_str());
  }
  async_error_.store(status.code() == StatusCode::kDisagreement ? ncclInternalError : ncclRemoteError);
}

Result<std::vector<CollectiveHeader>> EmulatedCommunicator::Agree(PendingCollective& pending) {
  const CollectiveRequest& request = pending.request;
  CollectiveHeader own;
  own.magic = peers_[0].magic;
  own.sequence = ++agreed_;
  own.count = request.count;
  own.kind = request.kind;
  own.type = request.type;
  own.operation = request.operation;
  own.root = request.root;
  own.route = pending.plan.route;
  own.send = pending.plan.send;
  own.receive = pending.plan.receive;
  own.start_us = pending.start_us;
  own.duration_us = pending.plan.duration_us;
  Result<std::vector<Message>> messages = ExchangeAll(data_, rank_, ranks_, MakeMessage(own, pending.operation),
                                                      DeadlineAfter(std::chrono::milliseconds(TimeoutMilliseconds())));
  if (!messages.ok()) return messages.status();
  std::vector<CollectiveHeader> headers;
  for (const Message& message : *messages) headers.push_back(HeaderOf(message));
  if (const std::optional<Mismatch> mismatch = FindMismatch(headers)) {
    GetDriver().commpoolEmulatorReport(mismatch->rule.c_str(), mismatch->details.c_str());
    return Status(StatusCode::kDisagreement, mismatch->rule + " (" + mismatch->details + ")");
  }
  JoinClocks(pending, *messages);
  return headers;
}

// This operation comes after the ranks that it receives from: all ranks as a rule, only the root in a broadcast, and in
// a reduce all ranks for the root and none for the others.
void EmulatedCommunicator::JoinClocks(const PendingCollective& pending, const std::vector<Message>& messages) {
  const CollectiveKind kind = pending.request.kind;
  if (kind == CollectiveKind::kReduce && rank_ != pending.request.root) return;
  for (int peer = 0; peer < ranks_; ++peer) {
    if (peer == rank_ || (kind == CollectiveKind::kBroadcast && peer != pending.request.root)) continue;
    JoinClock(messages[static_cast<size_t>(peer)], pending.operation);
  }
}

Status EmulatedCommunicator::RunCollective(PendingCollective& pending, double* end_us) {
  if (pending.request.kind == CollectiveKind::kTransfers) return RunTransfers(pending, end_us);
  const Result<std::vector<CollectiveHeader>> headers = Agree(pending);
  if (!headers.ok()) return headers.status();
  double start_us = 0;
  double duration_us = 0;
  for (const CollectiveHeader& header : *headers) {
    start_us = std::max(start_us, header.start_us);
    duration_us = std::max(duration_us, header.duration_us);
  }
  *end_us = start_us + duration_us;
  if (!MovesBytes()) return Status();
  const CollectiveRequest& request = pending.request;
  const size_t bytes = request.count * ElementBytes(request.type);
  const void* own = pending.reads.empty() ? nullptr : pending.reads.front();
  void* result = pending.writes.empty() ? nullptr : pending.writes.front();
  Reduction reduction{.type = request.type, .operation = request.operation};
  if (request.operation == ncclNumOps) {
    reduction.scalar = request.device_scalar != nullptr ? pending.reads.back() : request.scalar.data();
  }
  Ring ring(data_, rank_, ranks_, std::chrono::milliseconds(TimeoutMilliseconds()));
  switch (request.kind) {
    case CollectiveKind::kAllReduce:
      return ring.AllReduce(own, result, request.count, reduction);
    case CollectiveKind::kAllGather:
      return ring.AllGather(own, result, bytes);
    case CollectiveKind::kBroadcast:
      return ring.Broadcast(own, result, bytes, request.root);
    case CollectiveKind::kReduceScatter:
      return ring.ReduceScatter(own, result, request.count, reduction);
    case CollectiveKind::kReduce:
      return ring.Reduce(own, result, request.count, reduction, request.root);
    case CollectiveKind::kTransfers:
      break;
  }
  return Status();
}

}  // namespace commpool::internal::emulated_nccl
