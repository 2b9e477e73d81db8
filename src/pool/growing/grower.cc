#include "src/pool/growing/grower.h"

#include "src/base/bytes.h"

namespace commpool::internal {

engine::EngineOptions GrowingEngineOptions(const PoolConfiguration& configuration, uint64_t granularity) {
  engine::EngineOptions options;
  options.alignment = configuration.alignment_bytes;
  options.granularity = granularity;
  options.rounding = engine::Rounding::kClasses;
  options.spaces = engine::Spaces::kApart;
  options.segment_bytes = configuration.segment_bytes;
  if (configuration.segment_bytes != 0) options.page_bytes = RoundUp(configuration.segment_bytes, granularity);
  return options;
}

}  // namespace commpool::internal
