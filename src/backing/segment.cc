#include "src/backing/segment.h"

#include <string>

#include "src/backing/backing.h"
#include "src/base/host_reserve.h"
#include "src/base/log.h"

namespace commpool::internal {

Segment::Segment(const Backing& backing, CUdeviceptr address, uint64_t bytes)
    : row_(backing.row()), driver_(backing.driver()), context_(backing.context()), address_(address), bytes_(bytes) {}

Status Segment::CheckLives(const char* what) const {
  if (lives_) return Status();
  return Status(StatusCode::kFailedPrecondition, std::string(what) + " access: the segment was freed");
}

Status Segment::Grant(std::span<const int> peers) {
  COMMPOOL_TRY(CheckLives("granting"));
  ReservedVector<int> others;
  for (const int peer : peers) {
    if (peer != context_->device()) others.push_back(peer);
  }
  if (others.empty()) return Status();
  ContextGuard guard(driver_, context_->get());
  return GrantPeers(others);
}

Status Segment::Revoke(int peer) {
  COMMPOOL_TRY(CheckLives("revoking"));
  if (peer == context_->device()) {
    return Status(StatusCode::kInvalidArgument,
                  "the access of the memory's own device " + std::to_string(peer) + " cannot be taken back");
  }
  ContextGuard guard(driver_, context_->get());
  return RevokePeer(peer);
}

Status Segment::RevokePeer(int peer) {
  return Status(StatusCode::kFailedPrecondition,
                "revoking the access of device " + std::to_string(peer) + ": " + row_.why_no_revoke);
}

Status Segment::Release() {
  if (!lives_) return Status();
  lives_ = false;
  ContextGuard guard(driver_, context_->get());
  return ReleaseMemory();
}

void Segment::Abandon() {
  lives_ = false;
  context_->Abandon();
}

void Segment::ReleaseAndLog() {
  Status status = Release();
  if (!status.ok()) Log(LogLevel::kWarning, status.message());
}

}  // namespace commpool::internal
