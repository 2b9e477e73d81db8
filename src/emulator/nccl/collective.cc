#include "src/emulator/nccl/collective.h"

namespace commpool::internal::emulated_nccl {

namespace {

std::string Describe(const CollectiveHeader& header) {
  return std::string(CollectiveName(header.kind)) + " number " + std::to_string(header.sequence) + ", count " +
         std::to_string(header.count) + ", type " + std::to_string(header.type) + ", operation " +
         std::to_string(header.operation) + ", root " + std::to_string(header.root);
}

std::string DescribePlace(const PlaceInWindow& place) {
  if (place.window == 0) return "no window";
  return "window " + std::to_string(place.window) + " + " + std::to_string(place.offset) + " (at " +
         std::to_string(place.in_range) + ")";
}

std::string DescribePlaces(const CollectiveHeader& header) {
  if (header.route == Route::kBuffers) return "runs an ordinary kernel";
  return std::string(header.route == Route::kCopyEngines ? "by copy engines " : "") + "sends from " +
         DescribePlace(header.send) + " and receives into " + DescribePlace(header.receive);
}

bool SameCall(const CollectiveHeader& a, const CollectiveHeader& b) {
  return a.magic == b.magic && a.sequence == b.sequence && a.count == b.count && a.kind == b.kind && a.type == b.type &&
         a.operation == b.operation && a.root == b.root;
}

// Peers read or write what an all-gather receives and what a reduce-scatter sends, so its place must be the same on all
// ranks. Only the own rank uses the other buffer. In place, that one begins elsewhere on every rank.
bool SamePlaces(const CollectiveHeader& a, const CollectiveHeader& b) {
  if (a.route != b.route) return false;
  if (a.route == Route::kBuffers) return true;
  const bool same_send = a.send == b.send || a.kind == CollectiveKind::kAllGather;
  const bool same_receive = a.receive == b.receive || a.kind == CollectiveKind::kReduceScatter;
  return same_send && same_receive;
}

}  // namespace

std::optional<Mismatch> FindMismatch(const std::vector<CollectiveHeader>& headers) {
  const CollectiveHeader& first = headers.front();
  for (size_t rank = 1; rank < headers.size(); ++rank) {
    const CollectiveHeader& other = headers[rank];
    const std::string names[] = {"rank 0: ", "; rank " + std::to_string(rank) + ": "};
    if (!SameCall(first, other)) {
      return Mismatch{"collectives differ between ranks", names[0] + Describe(first) + names[1] + Describe(other)};
    }
    // NCCL picks the kernel on each rank by itself, so the real library would hang or give wrong data here (NCCL
    // 2.28.9, src/scheduler/symmetric_sched.cc).
    if (!SamePlaces(first, other)) {
      return Mismatch{"window offsets differ between ranks",
                      names[0] + DescribePlaces(first) + names[1] + DescribePlaces(other)};
    }
  }
  return std::nullopt;
}

}  // namespace commpool::internal::emulated_nccl
