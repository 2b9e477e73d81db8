#include "src/backing/owned_segment.h"

#include <string>

#include "src/base/log.h"
#include "src/base/try.h"

namespace commpool::internal {

Status OwnedSegment::CheckLive(const char* what) const {
  if (owned_) return Status();
  return Status(StatusCode::kFailedPrecondition, std::string(what) + ": the segment was freed");
}

Status OwnedSegment::Grant(std::span<const int> peers) {
  COMMPOOL_TRY(CheckLive("granting access"));
  ContextGuard guard(driver_, context_->get());
  for (const int peer : peers) {
    if (peer != context_->device()) COMMPOOL_TRY(GrantPeer(peer));
  }
  return Status();
}

Status OwnedSegment::Revoke(int peer) {
  COMMPOOL_TRY(CheckLive("revoking access"));
  return Status(StatusCode::kFailedPrecondition,
                "revoking the access of device " + std::to_string(peer) + ": " + row_.why_no_revoke);
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
