// Failures by what they are, of the parts of their sentence: NotFound("device ", device, " is none of ours").
#pragma once

#include <concepts>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "commpool/status.h"

namespace commpool::internal {

inline std::string_view AsText(std::string_view part) { return part; }
std::string AsText(std::integral auto part) { return std::to_string(part); }

inline Status FailureOfTexts(StatusCode code, std::initializer_list<std::string_view> texts) {
  std::string sentence;
  for (const std::string_view text : texts) sentence += text;
  return Status(code, std::move(sentence));
}

// Each part is text or a whole number.
Status Failure(StatusCode code, const auto&... parts) { return FailureOfTexts(code, {AsText(parts)...}); }

Status InvalidArgument(const auto&... parts) { return Failure(StatusCode::kInvalidArgument, parts...); }
Status OutOfMemory(const auto&... parts) { return Failure(StatusCode::kOutOfMemory, parts...); }
Status NotSupported(const auto&... parts) { return Failure(StatusCode::kNotSupported, parts...); }
Status FailedPrecondition(const auto&... parts) { return Failure(StatusCode::kFailedPrecondition, parts...); }
Status NotFound(const auto&... parts) { return Failure(StatusCode::kNotFound, parts...); }
Status DeadlineExceeded(const auto&... parts) { return Failure(StatusCode::kDeadlineExceeded, parts...); }
Status Disagreement(const auto&... parts) { return Failure(StatusCode::kDisagreement, parts...); }
Status RemoteFailure(const auto&... parts) { return Failure(StatusCode::kRemoteFailure, parts...); }

}  // namespace commpool::internal
