#include "tools/stress/ranks/fault.h"

namespace commpool::cli::stress_ranks {

const char* NameOf(Point point) {
  switch (point) {
    case Point::kBetween:
      return "between calls";
    case Point::kCreate:
      return "in create";
    case Point::kConnect:
      return "connecting";
    case Point::kFrame:
      return "in a message";
    case Point::kVerdict:
      return "before the verdict";
    case Point::kHalfVerdict:
      return "in the verdict";
    case Point::kMake:
      return "making a segment";
    case Point::kRegister:
      return "in NCCL's call";
    case Point::kRegistered:
      return "behind NCCL's call";
    case Point::kDeregister:
      return "deregistering";
    case Point::kUnmap:
      return "unmapping";
    case Point::kPublish:
      return "publishing";
    case Point::kPort:
      return "at the port";
  }
  return "?";
}

const char* NameOf(Kind kind) {
  switch (kind) {
    case Kind::kKill:
      return "kill";
    case Kind::kOrphan:
      return "orphan";
    case Kind::kStop:
      return "stop";
    case Kind::kPause:
      return "pause";
    case Kind::kLate:
      return "late";
    case Kind::kDelay:
      return "delay";
    case Kind::kRefuse:
      return "refuse";
    case Kind::kCrossed:
      return "crossed";
    case Kind::kFlood:
      return "flood";
  }
  return "?";
}

bool Happens(Kind kind, Point point) {
  switch (kind) {
    case Kind::kKill:
    case Kind::kOrphan:
    case Kind::kStop:
    case Kind::kPause:
      return point != Point::kPort;
    case Kind::kLate:
    case Kind::kDelay:
      return point == Point::kBetween;
    case Kind::kRefuse:
      return point == Point::kMake;
    case Kind::kCrossed:
      return point == Point::kCreate;
    case Kind::kFlood:
      return point == Point::kPort;
  }
  return false;
}

bool IsFatal(Kind kind) {
  return kind == Kind::kKill || kind == Kind::kOrphan || kind == Kind::kStop || kind == Kind::kLate ||
         kind == Kind::kCrossed;
}

std::string Describe(const Fault& fault) {
  return std::string(NameOf(fault.kind)) + " " + NameOf(fault.point) + ", on rank " + std::to_string(fault.victim) +
         " in step " + std::to_string(fault.step);
}

}  // namespace commpool::cli::stress_ranks
