// Turns measured collectives into advice: which kind of buffer to use for which sizes. Values; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "tools/cli/buffer_sources.h"

namespace commpool::cli {

using KindTimes = std::map<BufferKind, double>;  // microseconds; only the kinds that exist here

struct AdviceRow {
  Collective collective = Collective::kAllReduce;
  Place place = Place::kOut;
  uint64_t bytes = 0;
  KindTimes times = {};
};

// Adjacent sizes with the same best kind, as scopes take them: both ends included.
struct AdviceRange {
  uint64_t min_bytes = 0;
  uint64_t max_bytes = 0;
  BufferKind kind = BufferKind::kPlain;
  double least_gain = 1;  // plain's time / this kind's, among the sizes measured
  double most_gain = 1;
};

// The cheapest kind (plain, then local, then window) of those within 2 % of the fastest. REQUIRES: not empty.
BufferKind BestKind(const KindTimes& times);

// Plain's time / the time of `kind`; 1 where plain was not measured.
double Gain(const KindTimes& times, BufferKind kind);

// For rows of one collective and place, sizes ascending. A size between two measured ones belongs to the smaller one;
// sizes beyond them belong to no range.
std::vector<AdviceRange> MakeRanges(const std::vector<AdviceRow>& rows);

}  // namespace commpool::cli
