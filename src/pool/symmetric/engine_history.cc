#include "src/pool/symmetric/engine_history.h"

namespace commpool::internal {

std::string DescribeSharedOptions(const PoolConfiguration& configuration) {
  return std::string("backing ") + Name(configuration.backing.kind) + ", alignment_bytes " +
         std::to_string(configuration.alignment_bytes) + ", granularity_bytes " +
         std::to_string(configuration.granularity_bytes) + ", segment_bytes " +
         std::to_string(configuration.segment_bytes) + ", limit_bytes " + std::to_string(configuration.limit_bytes) +
         ", frees " + (configuration.frees == engine::FreeOrder::kOrdered ? "ordered" : "deferred") +
         ", placement rules " + std::to_string(engine::kPlacementRules);
}

engine::SequenceCall SequenceCallOf(CollectiveCall call) {
  switch (call) {
    case CollectiveCall::kReserve:
      return engine::SequenceCall::kReserve;
    case CollectiveCall::kReclaim:
    case CollectiveCall::kVerify:  // never noted
      return engine::SequenceCall::kReclaim;
    case CollectiveCall::kTrim:
    case CollectiveCall::kClose:
      return engine::SequenceCall::kTrim;
    case CollectiveCall::kCreate:
    case CollectiveCall::kRegister:
      return engine::SequenceCall::kRegister;
    case CollectiveCall::kDeregister:
      return engine::SequenceCall::kDeregister;
    case CollectiveCall::kSleep:
      return engine::SequenceCall::kSleep;
    case CollectiveCall::kWake:
      return engine::SequenceCall::kWake;
  }
  return engine::SequenceCall::kReserve;
}

std::vector<engine::SequenceEntry> EngineHistory::LastCalls() const {
  MutexLock lock(blocks_.mutex());
  const engine::SequenceLog& log = blocks_.engine<engine::SymmetricEngine>().log();
  const uint64_t first = count_ > engine::SequenceLog::kKept ? count_ - engine::SequenceLog::kKept : 0;
  std::vector<engine::SequenceEntry> calls;
  for (uint64_t number = first; number < count_; ++number) {
    const auto entry = log.Entry(number);
    if (entry) calls.push_back(*entry);
  }
  return calls;
}

}  // namespace commpool::internal
