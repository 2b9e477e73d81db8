// Buffers for collectives, of each kind that NCCL distinguishes: from a pool, or made and registered by hand. One
// thread.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "commpool/pool.h"
#include "tools/cli/collective_timer.h"

namespace commpool::cli {

enum class BufferKind { kPlain, kLocal, kWindow };
inline constexpr std::array kBufferKinds = {BufferKind::kPlain, BufferKind::kLocal, BufferKind::kWindow};
const char* Name(BufferKind kind);  // "window"

// Every rank makes the same calls, because those for windows are collective.
class BufferSource {
 public:
  virtual ~BufferSource() = default;

  // A pair of `bytes` each. Only one pair may exist.
  virtual Result<BufferPair> Take(uint64_t bytes) = 0;
  virtual Status GiveBack() = 0;
  // The pool that the buffers come from; 0: none.
  virtual commpool_pool pool() const { return 0; }
  // Call it last.
  virtual Status Close() { return Status(); }
};

// A pool, registered as `kind` says, with room for pairs of up to `most_bytes` each. kNotSupported where NCCL lacks the
// kind.
Result<std::unique_ptr<BufferSource>> MakePoolSource(const RankDevice& device, BufferKind kind, uint64_t most_bytes);
// ncclMemAlloc, with one registration for each buffer.
std::unique_ptr<BufferSource> MakeHandSource(const RankDevice& device, BufferKind kind);

// Pools of every kind that exists here; `without` gets the other kinds and why. All ranks refuse a kind, or none.
using BufferSources = std::map<BufferKind, std::unique_ptr<BufferSource>>;
Result<BufferSources> MakePoolSources(const RankDevice& device, uint64_t most_bytes, std::vector<std::string>& without);
Status CloseAll(BufferSources& sources);

// Times a pair of each source in turn, round after round, so that a drift of the machine favours none. Returns medians.
Result<std::vector<double>> TimeInTurn(const CollectiveTimer& timer, Collective collective, Place place, uint64_t bytes,
                                       const std::vector<BufferSource*>& sources, int rounds);

}  // namespace commpool::cli
