// The model of a report: what the page shows. Plain values.
//
// Times of a rank are nanoseconds of its own steady clock; RankModel::offset takes them to the clock of all.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/library/recording/entries.h"
#include "src/report/byte_series.h"
#include "src/report/small_slices.h"
#include "src/report/texts.h"

namespace commpool::internal::report {

inline constexpr int64_t kUnknown = INT64_MIN;  // a moment that is not known, or that has not come
inline constexpr uint32_t kNone = UINT32_MAX;   // of indices
inline constexpr uint64_t kUnlimited = UINT64_MAX;

struct SegmentModel {
  uint64_t address = 0;
  uint64_t bytes = 0;
  int64_t from = kUnknown;
  int64_t to = kUnknown;
};

struct BlockModel {
  uint64_t offset = 0;  // in its segment
  uint64_t bytes = 0;
  uint64_t requested = 0;
  int64_t from = kUnknown;
  int64_t to = kUnknown;
  uint32_t segment = kNone;
  uint32_t stream = kNoText;
  uint32_t stack = kNoText;
};

struct RegistrationModel {
  uint32_t segment = kNone;
  uint64_t communicator = 0;
  recording::RegistrationEntry kind = recording::RegistrationEntry::kWindow;
  int64_t from = kUnknown;
  int64_t to = kUnknown;
  uint64_t cost = 0;
};

struct SleepModel {
  int64_t from = kUnknown;
  int64_t to = kUnknown;
};

struct LeftOut {
  uint64_t blocks = 0;
  uint64_t bytes = 0;
};

struct PoolModel {
  uint64_t handle = 0;
  uint32_t name = kNoText;
  uint32_t kind = kNoText;
  uint32_t budget = kNone;  // of RankModel::budgets
  int64_t device = 0;
  uint64_t home = 0;
  uint64_t channel = 0;
  int64_t from = kUnknown;
  int64_t to = kUnknown;
  ByteSeries bytes;
  std::vector<SegmentModel> segments;
  std::vector<SleepModel> asleep;
  std::vector<RegistrationModel> registrations;
  std::vector<BlockModel> blocks;
  LeftOut left_out;
  SmallSlices small;
};

// SpanKind goes first, in its order.
enum class EventKind : uint8_t {
  kAgreement,
  kSleep,
  kWake,
  kCapture,
  kScope,
  kSearch,
  kGrowth,
  kRegistration,
  kDifference
};

enum class Outcome : uint8_t { kDone, kFailed };

struct EventModel {
  EventKind kind = EventKind::kAgreement;
  Outcome outcome = Outcome::kDone;
  uint32_t pool = kNone;
  int64_t from = kUnknown;
  int64_t to = kUnknown;
  std::string text = {};
  uint64_t home = 0;  // of an agreement
  uint64_t number = 0;
  int64_t waited_for = -1;  // a rank
};

struct HolderModel {
  uint32_t pool = kNone;
  uint64_t bytes = 0;
  int64_t blocks = 0;  // -1: unknown
  uint32_t stack = kNoText;
  std::string what = {};
};

struct PeakModel {
  int64_t time = kUnknown;
  uint64_t bytes = 0;
  std::vector<HolderModel> holders;  // largest first
};

// What pools share on a device: bytes that they reserve at the end, the most ever, and the limit or kUnlimited.
struct BudgetModel {
  uint32_t name = kNoText;
  int64_t device = 0;
  uint64_t bytes = 0;
  uint64_t peak = 0;
  uint64_t limit = 0;
};

// What clocks are aligned by.
struct Meeting {
  uint64_t home = 0;
  uint64_t number = 0;
  int64_t from = 0;
  int64_t to = 0;
};

struct RankModel {
  int64_t rank = -1;
  std::string file;
  recording::ProcessFacts facts;
  std::vector<std::string> notes;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t offset = 0;
  std::vector<PoolModel> pools;
  std::vector<BudgetModel> budgets;
  std::vector<EventModel> events;
  std::vector<Meeting> meetings;                 // some, where there are very many
  std::map<uint64_t, uint64_t> last_agreements;  // the number of the last one that it came to, by home
  uint64_t events_left_out = 0;
  PeakModel peak;
};

struct DifferingCall {
  int64_t rank = -1;
  int64_t time = kUnknown;
  std::string text;
};

struct DifferenceModel {
  std::string pool;
  uint64_t call = 0;
  std::vector<DifferingCall> ranks;
};

// A sentence, and where to look: the places of a rank and of its pool.
struct FindingModel {
  std::string text = {};
  uint32_t rank = kNone;
  uint32_t pool = kNone;
  int64_t time = kUnknown;
};

struct ReportModel {
  std::string title;
  std::vector<std::string> notes;
  std::vector<int64_t> without_recording;  // ranks of the program that left none
  Texts texts;
  std::vector<RankModel> ranks;
  std::optional<DifferenceModel> difference;
  std::vector<FindingModel> findings;
};

}  // namespace commpool::internal::report
