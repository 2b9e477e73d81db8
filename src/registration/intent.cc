#include "src/registration/intent.h"

namespace commpool::internal {

std::string Name(CollectiveCall call) {
  switch (call) {
    case CollectiveCall::kCreate:
      return "create";
    case CollectiveCall::kReserve:
      return "reserve";
    case CollectiveCall::kReclaim:
      return "reclaim";
    case CollectiveCall::kTrim:
      return "trim";
    case CollectiveCall::kRegister:
      return "register_with";
    case CollectiveCall::kDeregister:
      return "deregister";
    case CollectiveCall::kClose:
      return "close";
    case CollectiveCall::kVerify:
      return "verify";
    case CollectiveCall::kSleep:
      return "sleep";
    case CollectiveCall::kWake:
      return "wake";
  }
  return "unknown call";
}

std::string SubjectOfBytes(const Intent& intent) {
  if (intent.call != CollectiveCall::kSleep) return "the bytes of " + Name(intent.call);
  return "sleep: some keep their blocks' contents, or promise graphs without collectives, which counts as bytes";
}

}  // namespace commpool::internal
