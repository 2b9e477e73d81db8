#include "src/report/pool_json.h"

#include <numeric>
#include <vector>

#include "src/report/words.h"

namespace commpool::internal::report {

namespace {

void WriteBytes(JsonWriter& json, const std::vector<BytePoint>& points, const RankTimes& times) {
  json.Key("bytes");
  json.BeginObject();
  WriteColumn(json, "time", points, [&](const BytePoint& point) { json.Number(times.Of(point.time)); });
  WriteColumn(json, "reserved", points, [&](const BytePoint& point) { json.Number(point.reserved); });
  WriteColumn(json, "allocated", points, [&](const BytePoint& point) { json.Number(point.allocated); });
  WriteColumn(json, "requested", points, [&](const BytePoint& point) { json.Number(point.requested); });
  WriteColumn(json, "cached", points, [&](const BytePoint& point) { json.Number(point.cached); });
  WriteColumn(json, "pending", points, [&](const BytePoint& point) { json.Number(point.pending); });
  json.EndObject();
}

// The columns that all things with a life have.
template <typename Rows>
void WriteLives(JsonWriter& json, const Rows& rows, const RankTimes& times) {
  WriteColumn(json, "from", rows, [&](const auto& row) { json.Number(times.Of(row.from)); });
  WriteColumn(json, "to", rows, [&](const auto& row) { json.Number(times.Of(row.to)); });
}

void WriteSegments(JsonWriter& json, const PoolModel& pool, const RankTimes& times) {
  json.Key("segments");
  json.BeginObject();
  WriteColumn(json, "address", pool.segments, [&](const SegmentModel& segment) { json.Text(InHex(segment.address)); });
  WriteColumn(json, "bytes", pool.segments, [&](const SegmentModel& segment) { json.Number(segment.bytes); });
  WriteLives(json, pool.segments, times);
  json.EndObject();
  json.Key("asleep");
  json.BeginObject();
  WriteLives(json, pool.asleep, times);
  json.EndObject();
}

void WriteRegistrations(JsonWriter& json, const std::vector<RegistrationModel>& rows, const RankTimes& times) {
  json.Key("registrations");
  json.BeginObject();
  WriteColumn(json, "segment", rows, [&](const RegistrationModel& row) { json.Number(IndexOrNone(row.segment)); });
  WriteColumn(json, "communicator", rows, [&](const RegistrationModel& row) { json.Text(InHex(row.communicator)); });
  WriteColumn(json, "kind", rows, [&](const RegistrationModel& row) {
    json.Text(row.kind == recording::RegistrationEntry::kWindow ? "window" : "buffer");
  });
  WriteLives(json, rows, times);
  WriteColumn(json, "cost", rows, [&](const RegistrationModel& row) { json.Number(row.cost); });
  json.EndObject();
}

void WriteBlocks(JsonWriter& json, const PoolModel& pool, const RankTimes& times) {
  const std::vector<BlockModel>& blocks = pool.blocks;
  json.Key("blocks");
  json.BeginObject();
  WriteColumn(json, "segment", blocks, [&](const BlockModel& block) { json.Number(IndexOrNone(block.segment)); });
  WriteColumn(json, "offset", blocks, [&](const BlockModel& block) { json.Number(block.offset); });
  WriteColumn(json, "bytes", blocks, [&](const BlockModel& block) { json.Number(block.bytes); });
  WriteColumn(json, "requested", blocks, [&](const BlockModel& block) { json.Number(block.requested); });
  WriteLives(json, blocks, times);
  WriteColumn(json, "stream", blocks, [&](const BlockModel& block) { json.Number(IndexOrNone(block.stream)); });
  WriteColumn(json, "stack", blocks, [&](const BlockModel& block) { json.Number(IndexOrNone(block.stack)); });
  json.EndObject();
  json.Key("left_out");
  json.BeginObject();
  json.Key("blocks");
  json.Number(pool.left_out.blocks);
  json.Key("bytes");
  json.Number(pool.left_out.bytes);
  json.EndObject();
}

void WriteSmall(JsonWriter& json, const SmallSlices& small, const RankTimes& times) {
  const std::vector<SmallSlices::Slice> slices = small.Slices();
  // The page shows classes by size.
  std::vector<size_t> order(small.classes().size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return small.classes()[a] < small.classes()[b]; });
  const auto write_classes = [&](const std::vector<uint64_t>& counts) {
    json.BeginArray();
    for (const size_t place : order) json.Number(counts[place]);
    json.EndArray();
  };
  json.Key("small");
  json.BeginObject();
  json.Key("bytes");
  write_classes(small.classes());
  WriteColumn(json, "time", slices, [&](const SmallSlices::Slice& slice) { json.Number(times.Of(slice.begin)); });
  WriteColumn(json, "served", slices, [&](const SmallSlices::Slice& slice) { write_classes(slice.served); });
  WriteColumn(json, "held", slices, [&](const SmallSlices::Slice& slice) { write_classes(slice.cached); });
  json.EndObject();
}

}  // namespace

void WritePool(JsonWriter& json, const PoolModel& pool, const RankTimes& times, const Texts& texts) {
  json.BeginObject();
  json.Key("name");
  json.Text(texts[pool.name]);
  json.Key("kind");
  json.Text(texts[pool.kind]);
  json.Key("device");
  json.Number(pool.device);
  json.Key("from");
  json.Number(times.Of(pool.from));
  json.Key("to");
  json.Number(times.Of(pool.to));
  WriteBytes(json, pool.bytes.Points(), times);
  WriteSegments(json, pool, times);
  WriteRegistrations(json, pool.registrations, times);
  WriteBlocks(json, pool, times);
  WriteSmall(json, pool.small, times);
  json.EndObject();
}

}  // namespace commpool::internal::report
