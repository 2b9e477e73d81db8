// One pool of the model as JSON, and what the rest of the model writes likewise.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "src/report/json_writer.h"
#include "src/report/model.h"

namespace commpool::internal::report {

// A rank's times in the report's.
class RankTimes {
 public:
  RankTimes(int64_t zero, int64_t offset) : shift_(offset - zero) {}
  // -1 for kUnknown.
  int64_t Of(int64_t time) const { return time == kUnknown ? -1 : std::max<int64_t>(time + shift_, 0); }

 private:
  int64_t shift_;
};

inline int64_t IndexOrNone(uint32_t index) { return index == kNone ? -1 : int64_t{index}; }

// `write` writes one value a row.
template <typename Rows, typename Write>
void WriteColumn(JsonWriter& json, std::string_view name, const Rows& rows, Write write) {
  json.Key(name);
  json.BeginArray();
  for (const auto& row : rows) write(row);
  json.EndArray();
}

void WritePool(JsonWriter& json, const PoolModel& pool, const RankTimes& times, const Texts& texts);

}  // namespace commpool::internal::report
