// Buffers that scopes with size ranges route to the pools of other sources. One thread.
#ifndef COMMPOOL_TOOLS_CLI_SCOPED_SOURCE_H_
#define COMMPOOL_TOOLS_CLI_SCOPED_SOURCE_H_

#include <memory>
#include <vector>

#include "tools/cli/advice.h"

namespace commpool::cli {

// `sources` must outlive it and have room for its pairs too. Sizes without a range come from the default pool.
std::unique_ptr<BufferSource> MakeScopedSource(const RankDevice& device, const BufferSources& sources,
                                               std::vector<AdviceRange> ranges);

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_CLI_SCOPED_SOURCE_H_
