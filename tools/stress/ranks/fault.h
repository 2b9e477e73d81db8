// The faults of `commpool_stress ranks`: where in the protocol one happens, and what happens then. Values.
#pragma once

#include <array>
#include <cstddef>
#include <string>

namespace commpool::cli::stress_ranks {

// A place in the protocol, on the rank with the planned fault.
enum class Point {
  kBetween,      // between two calls
  kCreate,       // in create: before rank 0's address is sent over the home communicator
  kConnect,      // in create: at the first connection of the agreement channel
  kFrame,        // half of a message is sent
  kVerdict,      // the rank's message is sent, the verdict has not come; on rank 0: all messages have come, none is
                 // answered
  kHalfVerdict,  // rank 0 has told some ranks of the verdict
  kMake,         // before a segment is made
  kRegister,     // before NCCL's registration; the others wait in it
  kRegistered,   // after NCCL's registration
  kDeregister,   // before NCCL ends a registration
  kUnmap,        // before memory is unmapped
  kPublish,      // half of a message of the library's own thread is sent
  kPort          // the port of the agreement channel is open
};

enum class Kind {
  kKill,     // the process ends at once
  kOrphan,   // the same, and a forked child survives
  kStop,     // the process is stopped, and continues once the others have given up
  kPause,    // the process is stopped, and continues well before the deadline
  kLate,     // the calling thread comes after the deadline
  kDelay,    // the calling thread comes well before the deadline
  kRefuse,   // the driver has no memory
  kCrossed,  // two pools are created in the other order
  kFlood     // strangers connect: silent ones, talking ones, more than fit
};

inline constexpr std::array<Point, 13> kPoints = {
    Point::kBetween,     Point::kCreate,  Point::kConnect,  Point::kFrame,      Point::kVerdict,
    Point::kHalfVerdict, Point::kMake,    Point::kRegister, Point::kRegistered, Point::kDeregister,
    Point::kUnmap,       Point::kPublish, Point::kPort};
inline constexpr std::array<Kind, 9> kKinds = {Kind::kKill,  Kind::kOrphan, Kind::kStop,    Kind::kPause, Kind::kLate,
                                               Kind::kDelay, Kind::kRefuse, Kind::kCrossed, Kind::kFlood};

const char* NameOf(Point point);
const char* NameOf(Kind kind);

// Whether such a fault makes sense at the point.
bool Happens(Kind kind, Point point);

// Whether ranks without a fault may fail after it.
bool IsFatal(Kind kind);

struct Fault {
  Point point = Point::kBetween;
  Kind kind = Kind::kKill;
  int victim = 0;
  size_t step = 0;  // the call in which the fault waits
  int skip = 0;     // how often to pass the point before
};

// Such as "kill in a message, on rank 2 in step 5".
std::string Describe(const Fault& fault);

}  // namespace commpool::cli::stress_ranks
