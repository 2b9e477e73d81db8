#include "src/pool/growing/growing_mode.h"

#include <algorithm>
#include <utility>

#include "src/base/bytes.h"
#include "src/base/host_patience.h"
#include "src/base/log.h"
#include "src/driver/graph_handles.h"
#include "src/pool/abandonment.h"
#include "src/pool/growing/expandable_grower.h"
#include "src/pool/growing/fixed_grower.h"
#include "src/pool/growing/memory_search.h"
#include "src/pool/settings/settings.h"

namespace commpool::internal {

GrowingMode::GrowingMode(PoolParts& parts, engine::CachingEngine& engine)
    : parts_(parts),
      engine_(&engine),
      progress_(parts.basis, parts.blocks, parts.events, engine),
      graphs_(parts.basis, parts.blocks, parts.captures, engine) {}

std::unique_ptr<PoolMode> GrowingMode::MakeFixed(PoolParts& parts, engine::CachingEngine& engine) {
  auto mode = std::make_unique<GrowingMode>(parts, engine);
  mode->grower_ = std::make_unique<FixedGrower>(parts, mode->progress_, engine);
  mode->registrar_.emplace(parts);
  return mode;
}

std::unique_ptr<PoolMode> GrowingMode::MakeExpandable(PoolParts& parts, engine::ExpandableEngine& engine) {
  auto mode = std::make_unique<GrowingMode>(parts, engine);
  mode->grower_ = std::make_unique<ExpandableGrower>(parts, mode->progress_, engine);
  return mode;
}

Result<engine::Freed> GrowingMode::FreeInEngine(CUdeviceptr address) { return graphs_.Free(address); }

bool GrowingMode::EndsWithItsFree(CUdeviceptr address) const { return !graphs_.Has(address); }

void GrowingMode::AfterFree() {
  if (parts_.basis.device->health().broken()) return;  // quarantined: the memory goes with the process
  if (parts_.life.destroyed()) {
    Insist([&] { ReleaseUnused(); });  // nobody comes again for a destroyed pool's memory
  } else {
    KeepToThreshold();
  }
}

void GrowingMode::ForgetStream(StreamKey stream) {
  // Whoever is about to record on the stream does so first: afterwards its handle may be gone.
  MutexLock growth(parts_.segments.growth());
  progress_.ForgetStream(stream);
  parts_.blocks.ForgetStream(stream);
}

Caching GrowingMode::CachingNow() const {
  // While a capture is open no cache may serve its streams, which may be any.
  const bool caching = parts_.basis.configuration.release_threshold_bytes == UINT64_MAX && !parts_.captures.any_open();
  return caching ? Caching::kYes : Caching::kNo;
}

void GrowingMode::KeepToThreshold() {
  const uint64_t threshold = parts_.basis.configuration.release_threshold_bytes;
  if (threshold == UINT64_MAX || parts_.blocks.ReservedBytes() <= threshold) return;
  if (parts_.basis.device->capturing() || parts_.life.asleep()) return;
  Result<uint64_t> released = grower_->Release(threshold, Wait::kNo);
  if (!released.ok()) Log(LogLevel::kWarning, parts_.basis.Named(released.status()).message());
}

Status GrowingMode::Reserve(uint64_t bytes) {
  Status open = parts_.CheckOpen();
  if (!open.ok()) return open;
  if (bytes == 0) return Status(StatusCode::kInvalidArgument, parts_.basis.title + ": reserve of 0 bytes");
  const Status possible = parts_.segments.CheckPossible(bytes);
  if (!possible.ok()) return possible;
  parts_.blocks.DrainCaches();
  // What a block of the calling thread's legacy stream could be served with counts as there.
  const StreamKey stream = KeyOfStream(nullptr);
  Status status = grower_->Grow(bytes, stream, Effort::kReserve);
  if (status.code() != StatusCode::kOutOfMemory || !parts_.segments.FitsEmptyPlacement(bytes)) return status;
  ReleaseOtherPools(parts_.basis);
  parts_.basis.runtime.holders.Release(parts_.basis.device->device(), bytes);
  return grower_->Grow(bytes, stream, Effort::kPressure);
}

Result<uint64_t> GrowingMode::Reclaim() {
  const Status awake = parts_.CheckAwake();
  if (!awake.ok()) return awake;
  const uint64_t before = parts_.blocks.ReservedBytes();
  parts_.blocks.PollFences();
  KeepToThreshold();
  return before - std::min(before, parts_.blocks.ReservedBytes());
}

Result<uint64_t> GrowingMode::Trim(uint64_t keep_bytes) {
  const Status awake = parts_.CheckAwake();
  if (!awake.ok()) return awake;
  const size_t graphs = parts_.blocks.ReservedBytes() > keep_bytes ? parts_.captures.AwaitEndedGraphs() : 0;
  Result<uint64_t> released = TrimNow(keep_bytes);
  if (graphs > 0 && parts_.blocks.ReservedBytes() > keep_bytes && LogEnabled(LogLevel::kInfo)) {
    Log(LogLevel::kInfo, parts_.basis.title + ": trim left " + FormatBytes(parts_.blocks.ReservedBytes()) +
                             ": graphs " + "that captured with the pool live, and hold what they were served");
  }
  return released;
}

Result<uint64_t> GrowingMode::TrimNow(uint64_t keep_bytes) {
  graphs_.Collect();
  parts_.blocks.DrainCaches();
  return grower_->Release(keep_bytes, Wait::kYes);
}

uint64_t GrowingMode::ReleaseUnused() {
  // A capture, on another device too, keeps fences from being recorded.
  if (parts_.life.destroyed() && parts_.basis.device->captures().any()) parts_.basis.device->captures().Postpone();
  if (parts_.basis.device->capturing() || parts_.life.asleep()) return 0;
  Result<uint64_t> released = TrimNow(0);
  if (!released.ok()) Log(LogLevel::kWarning, parts_.basis.Named(released.status()).message());
  return released.ok() ? *released : 0;
}

Status GrowingMode::Close() {
  MutexLock collective(parts_.collective);
  const Status unpinned = parts_.pins.CheckMayDeregister();
  if (!unpinned.ok()) return parts_.basis.Named(unpinned);
  const Status quiet = parts_.basis.device->CheckNotCapturing();
  if (!quiet.ok()) return parts_.basis.Named(quiet);
  parts_.life.BeginClose();
  if (parts_.basis.device->health().broken()) return parts_.basis.device->health().first_error();
  Status status = parts_.blocks.WaitForDevice();
  if (!status.ok()) return status;
  status = parts_.registrations.RemoveAll();
  if (!status.ok()) return status;
  parts_.blocks.CloseCaches(ThreadCaches::Reopen::kNever);
  status = Trim(0).status();
  if (status.ok()) parts_.life.EndClose();
  return status;
}

void GrowingMode::AfterDestroy() {
  parts_.blocks.CloseCaches(ThreadCaches::Reopen::kNever);
  if (parts_.blocks.ReservedBytes() > 0) parts_.captures.AwaitEndedGraphs();
  AfterFree();
}

void GrowingMode::AfterCaptureBegan() { parts_.blocks.CloseCaches(ThreadCaches::Reopen::kAtNextUse); }

Status GrowingMode::RegisterWith(ncclComm_t communicator) {
  if (registrar_) return registrar_->RegisterWith(communicator);
  const std::string why = " is expandable: its pages move, and what NCCL has registered may not. Make a fixed pool";
  return WithSources(Status(StatusCode::kNotSupported, parts_.basis.title + why), parts_.basis.configuration.sources);
}

Result<uint64_t> GrowingMode::RegisterPending() {
  if (registrar_) return registrar_->RegisterPending();
  const Status open = parts_.CheckOpen();
  return open.ok() ? Result<uint64_t>(uint64_t{0}) : Result<uint64_t>(open);
}

Status GrowingMode::Deregister(ncclComm_t communicator) {
  return registrar_ ? registrar_->Deregister(communicator) : Status();
}

Status GrowingMode::Rehome(ncclComm_t) {
  return Status(StatusCode::kNotSupported,
                parts_.basis.title + " is not symmetric and has no home: register_with() another communicator");
}

Status GrowingMode::AbandonCommunicator(ncclComm_t communicator, CommunicatorLife life) {
  return internal::AbandonCommunicator(parts_, communicator, life);
}

}  // namespace commpool::internal
