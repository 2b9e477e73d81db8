// What follows from measured collectives: which kind of buffer to use for which sizes. Values; any thread.
#ifndef COMMPOOL_TOOLS_CLI_ADVICE_H_
#define COMMPOOL_TOOLS_CLI_ADVICE_H_

#include <cstdint>
#include <map>
#include <vector>

#include "tools/cli/buffer_sources.h"

namespace commpool::cli {

using KindTimes = std::map<BufferKind, double>;  // microseconds; without the kinds that cannot be had

struct AdviceRow {
  Collective collective = Collective::kAllReduce;
  Place place = Place::kOut;
  uint64_t bytes = 0;
  KindTimes times = {};
};

// Adjacent sizes for which one kind is best, as scopes take them: both ends are in.
struct AdviceRange {
  uint64_t min_bytes = 0;
  uint64_t max_bytes = 0;
  BufferKind kind = BufferKind::kPlain;
  double least_gain = 1;  // plain's time / this kind's, among the sizes measured
  double most_gain = 1;
};

// The kind that costs least to have (plain, then local, then window) of those that are within 2 % of the fastest.
// REQUIRES: not empty.
BufferKind BestKind(const KindTimes& times);

// Plain's time / that of `kind`: 1 where plain was not measured.
double Gain(const KindTimes& times, BufferKind kind);

// Of rows of one collective and place, sizes ascending. A size between two measured ones goes with the smaller; sizes
// outside of them are in no range.
std::vector<AdviceRange> MakeRanges(const std::vector<AdviceRow>& rows);

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_CLI_ADVICE_H_
