// Buffers for collectives, of every kind that NCCL tells apart: from a pool, or made and registered by hand. One
// thread.
#ifndef COMMPOOL_TOOLS_CLI_BUFFER_SOURCES_H_
#define COMMPOOL_TOOLS_CLI_BUFFER_SOURCES_H_

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

// Every rank makes the same calls: those for windows are collective.
class BufferSource {
 public:
  virtual ~BufferSource() = default;

  // Two buffers of `bytes`; one pair at a time.
  virtual Result<BufferPair> Take(uint64_t bytes) = 0;
  virtual Status GiveBack() = 0;
  // The pool that they are from; 0 where there is none.
  virtual commpool_pool pool() const { return 0; }
  // The last call.
  virtual Status Close() { return Status(); }
};

// A pool, registered as `kind` says, with room for pairs up to `most_bytes` each. kNotSupported where NCCL lacks the
// kind.
Result<std::unique_ptr<BufferSource>> MakePoolSource(const RankDevice& device, BufferKind kind, uint64_t most_bytes);
// ncclMemAlloc, and a registration for each buffer.
std::unique_ptr<BufferSource> MakeHandSource(const RankDevice& device, BufferKind kind);

// Pools of every kind that can be had; `without` gets the others and why. A kind is refused on every rank or on none.
using BufferSources = std::map<BufferKind, std::unique_ptr<BufferSource>>;
Result<BufferSources> MakePoolSources(const RankDevice& device, uint64_t most_bytes, std::vector<std::string>& without);
Status CloseAll(BufferSources& sources);

// A pair of each source in one round after the other, so that a machine that drifts favours none: the medians.
Result<std::vector<double>> TimeInTurn(const CollectiveTimer& timer, Collective collective, Place place, uint64_t bytes,
                                       const std::vector<BufferSource*>& sources, int rounds);

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_CLI_BUFFER_SOURCES_H_
