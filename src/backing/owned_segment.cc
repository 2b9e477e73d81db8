#include "src/backing/owned_segment.h"

#include "src/base/log.h"

namespace commpool::internal {

Status OwnedSegment::CheckLive(const char* what) const {
  if (owned_) return Status();
  return Status(StatusCode::kFailedPrecondition, std::string(what) + ": the segment was freed");
}

Status OwnedSegment::Grant(std::span<const int> peers) {
  Status status = CheckLive("granting access");
  ContextGuard guard(driver_, context_->get());
  for (auto peer = peers.begin(); status.ok() && peer != peers.end(); ++peer) {
    if (*peer != context_->device()) status = GrantPeer(*peer);
  }
  return status;
}

Status OwnedSegment::Revoke(int peer) {
  Status status = CheckLive("revoking access");
  if (!status.ok()) return status;
  return Status(StatusCode::kFailedPrecondition,
                "revoking the access of device " + std::to_string(peer) + ": " + CanRevoke().reason);
}

Status OwnedSegment::Release() {
  if (!owned_) return Status();
  owned_ = false;
  ContextGuard guard(driver_, context_->get());
  return ReleaseMemory();
}

void OwnedSegment::Abandon() {
  owned_ = false;
  context_->Abandon();
}

void OwnedSegment::ReleaseAndLog() {
  Status status = Release();
  if (!status.ok()) Log(LogLevel::kWarning, status.message());
}

}  // namespace commpool::internal
