// What one rank brings to a collective call, and what follows from the intents of all: values, and their bytes.
#ifndef COMMPOOL_SRC_REGISTRATION_INTENT_H_
#define COMMPOOL_SRC_REGISTRATION_INTENT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "commpool/status.h"
#include "src/registration/wire.h"

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
  kWake
};

const char* Name(CollectiveCall call);

struct Intent {
  CollectiveCall call = CollectiveCall::kReserve;
  uint64_t bytes = 0;           // as the caller asked
  uint64_t segment_index = 0;   // that a new segment would get
  uint64_t granularity = 1;     // of this rank's segments
  uint64_t memory_left = 0;     // on this rank's device; UINT64_MAX where it does not count
  uint64_t sequence_count = 0;  // calls so far, and their hash
  uint64_t sequence_hash = 0;
  int nccl_version = 0;
  std::string pool = {};                // of create: its name
  std::string options = {};             // of create: those that have to be the same on every rank
  Status divergence = {};               // the difference between the sequences that this rank has heard of before
  Status readiness = {};                // why this rank cannot take part, if it cannot
  std::vector<uint64_t> freed = {};     // deferred frees of this rank, ascending
  std::string claim = {};               // of communicators: src/registration/domain.h
  std::vector<uint64_t> segments = {};  // of create: the bytes of those that this rank has already
};

std::string Encode(const Intent& intent);
std::optional<Intent> DecodeIntent(std::string_view bytes);

// What follows from the intents of all ranks. Its size does not grow with their number.
struct Agreed {
  uint64_t granularity = 1;  // the largest of any rank
  uint64_t least_memory_left = 0;
  int rank_with_least_memory = 0;
  std::vector<uint64_t> freed = {};     // blocks that every rank has freed, ascending
  std::vector<uint64_t> segments = {};  // of create: the bytes of all; a rank may have the first ones alone
  Status claims = {};                   // whether what the ranks say of communicators goes together
  std::string findings = {};            // of whoever judged the claims
};

std::string Encode(const Agreed& agreed);
std::optional<Agreed> DecodeAgreed(std::string_view bytes);

// A status among other values.
void Write(WireWriter& writer, const Status& status);
Status ReadStatus(WireReader& reader);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_REGISTRATION_INTENT_H_
