// What one rank brings to a collective call (its intent), and what follows from the intents of all ranks. The structs
// go over the wire as they are; CompareIntents alone compares them. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "commpool/status.h"
#include "src/library/base/field_list.h"
#include "src/library/registration/wire.h"

namespace commpool::internal {

enum class CollectiveCall : uint32_t {
  kCreate,
  kReserve,
  kReclaim,
  kTrim,
  kRegister,
  kDeregister,
  kClose,
  kVerify,
  kSleep,  // bytes: what its caller asks for, as a number
  kWake,
  kSleepCommunicator,
  kWakeCommunicator,
  kAddRegistrar,
  kRemoveRegistrar,
  kMapPeers,
  kRehome  // ranks that create meet it
};

std::string Name(CollectiveCall call);

// How the windows of a communicator come back to their places after a sleep, as a number that tells orders apart.
struct ReturnReport {
  uint64_t number = 0;  // the communicator's
  uint64_t order = 0;
  using Fields = FieldList<&ReturnReport::number, &ReturnReport::order>;
};

// What one rank says of communicators when a call begins (domain.h).
struct DomainReport {
  std::vector<uint64_t> held = {};      // numbers of the registrations that it has, ascending
  bool passed = false;                  // whether it passed a communicator; else null
  std::optional<uint64_t> number = {};  // of the passed one, if it is home or registered; at create, proposed for home
  int rank = 0;                         // in the passed one
  int ranks = 0;
  std::vector<ReturnReport> returns = {};  // of sleep, where windows are to come back to their places

  bool Valid() const { return !passed || (rank >= 0 && rank < ranks); }
  using Fields = FieldList<&DomainReport::held, &DomainReport::passed, &DomainReport::number, &DomainReport::rank,
                           &DomainReport::ranks, &DomainReport::returns>;
};

// What one rank wants, for one pool of a call. CompareIntents knows which fields have to be equal on all ranks.
struct Intent {
  CollectiveCall call = CollectiveCall::kReserve;
  std::string pool = {};  // its name; empty for a communicator that sleeps or wakes
  uint64_t bytes = 0;     // as the caller asked
  int nccl_version = 0;
  std::vector<std::string> options = {};  // of create, such as "frees deferred": the same on every rank
  uint64_t segment_index = 0;             // that a new segment would get
  uint64_t channel = 0;                   // the pool's number in home; 0 where it has none
  uint64_t granularity = 1;               // of this rank's segments
  uint64_t reach = 0;                     // of its memory, as a backing counts it: 0 is the farthest
  uint64_t memory_left = 0;               // on this rank's device; UINT64_MAX where it does not count
  uint64_t sequence_count = 0;            // calls so far, and their hash
  uint64_t sequence_hash = 0;
  Status divergence = {};               // the difference between the sequences, where this rank knows one already
  Status readiness = {};                // why this rank cannot take part, if it cannot
  std::vector<uint64_t> freed = {};     // deferred frees of this rank, ascending
  DomainReport report = {};             // of communicators
  std::vector<uint64_t> segments = {};  // of create: the bytes of those that this rank has already

  using Fields = FieldList<&Intent::call, &Intent::pool, &Intent::bytes, &Intent::nccl_version, &Intent::options,
                           &Intent::segment_index, &Intent::channel, &Intent::granularity, &Intent::reach,
                           &Intent::memory_left, &Intent::sequence_count, &Intent::sequence_hash, &Intent::divergence,
                           &Intent::readiness, &Intent::freed, &Intent::report, &Intent::segments>;
};

// One rank's message of round 1: its intents for all pools of the call, in the order in which the program passed them.
struct CallIntents {
  static constexpr const char* kName = "intent";
  std::vector<Intent> pools = {};
  using Fields = FieldList<&CallIntents::pools>;
};

// What every rank needs to know of all ranks' reports, made by the judge of the reports.
struct Findings {
  Status status = {};    // whether what the ranks say of communicators goes together
  bool any_new = false;  // of register_with: some rank passed a communicator that is not registered yet
  bool home = false;     // of register_with: some rank passed home
  uint64_t home_id = 0;  // of create: rank 0's proposal
  using Fields = FieldList<&Findings::status, &Findings::any_new, &Findings::home, &Findings::home_id>;
};

// What follows from the intents of all ranks. Its size does not grow with their number.
struct Agreed {
  uint64_t granularity = 1;  // the largest of any rank
  uint64_t reach = 0;        // likewise, so the least
  uint64_t least_memory_left = 0;
  int rank_with_least_memory = 0;
  std::vector<uint64_t> freed = {};     // blocks that every rank has freed, ascending
  std::vector<uint64_t> segments = {};  // of create: the bytes of all segments; a rank may have only the first of them
  Findings findings = {};
  using Fields = FieldList<&Agreed::granularity, &Agreed::reach, &Agreed::least_memory_left,
                           &Agreed::rank_with_least_memory, &Agreed::freed, &Agreed::segments, &Agreed::findings>;
};

// The decision for the pools of a call: all go on, or none. The ranks agree on a pool, or they do not, or their
// sequences differ. In the last case one more round finds the first difference between rank 0 and `traced_rank`.
struct CallVerdict {
  static constexpr const char* kName = "decision";
  Status failure = {};
  bool diverged = false;     // the failure is a difference between the sequences
  uint64_t traced_rank = 0;  // 0: none
  std::vector<Agreed> pools =
      {};  // in the order of the call, up to the first that is refused: its place is their number

  bool refused() const { return !failure.ok() || traced_rank != 0; }
  using Fields =
      FieldList<&CallVerdict::failure, &CallVerdict::diverged, &CallVerdict::traced_rank, &CallVerdict::pools>;
};

// How a step went for each pool of a call, on one rank or, as a decision, on all.
struct Outcomes {
  static constexpr const char* kName = "outcome";
  std::vector<Status> pools = {};
  using Fields = FieldList<&Outcomes::pools>;
};

// Compares the intents of all ranks for one pool, rank 0's first. It does not judge their reports.
CallVerdict CompareIntents(const std::vector<Intent>& intents);

// kDisagreement where the ranks do not call for the same pools in the same order. A call for one pool is not checked
// here: CompareIntents compares the pool's name.
Status CheckSamePools(const std::vector<CallIntents>& calls);

}  // namespace commpool::internal
