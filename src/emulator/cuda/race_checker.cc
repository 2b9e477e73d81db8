#include "src/emulator/cuda/race_checker.h"

#include <algorithm>
#include <iterator>
#include <random>
#include <string>
#include <utility>

#include "src/emulator/cuda/race_report.h"

namespace commpool::internal::emulator {

namespace {

// A history drops accesses that can race with nothing any more, each time its size has doubled.
constexpr size_t kFewPieces = 1024;

// An operation takes two ticks: it reads at the first and writes at the second.
constexpr uint64_t kTicks = 2;

uint64_t RandomProcessNumber() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

// Spreads stream numbers over 64 bits, so that numbers of two processes differ.
uint64_t Mixed(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

// A replay keeps the place of its capture.
void NotePlace(Operation& operation) {
  if (operation.place != nullptr) return;
  operation.place = PlaceOfThisThread();
  if (operation.place == nullptr) operation.issued_at = CallStack::Capture();
}

void NoteBlock(Operation& operation, std::shared_ptr<const AnnouncedBlock> block) {
  const auto known = std::find(operation.blocks.begin(), operation.blocks.end(), block);
  if (block != nullptr && known == operation.blocks.end()) operation.blocks.push_back(std::move(block));
}

// What orders an access there besides the operation's own clock: what the allocator had heard when the block was free.
// Where none tells of the block, all that PyTorch's had heard.
const Clock& HeardOf(const Operation& operation, CUdeviceptr address) {
  const Clock* heard = operation.heard.get();
  for (const auto& block : operation.blocks) {
    if (block->heard != nullptr && address - block->address < block->bytes) heard = block->heard.get();
  }
  return operation.clock.Covers(*heard) ? operation.clock : *heard;
}

std::shared_ptr<const Clock> Joined(const Clock& one, const Clock& other) {
  auto joined = std::make_shared<Clock>(one);
  joined->Join(other);
  return joined;
}

void Learn(std::shared_ptr<const Clock>& knower, const Clock& clock) {
  if (!knower->Covers(clock)) knower = Joined(*knower, clock);
}

// A column of a tall tensor has thousands of ranges, so the search does not visit all. It may miss a wide range that
// begins before another one.
bool IsWithin(const commpoolEmulatorRange& range, const std::vector<commpoolEmulatorRange>& by_address) {
  const auto after = std::ranges::upper_bound(by_address, range.address, {}, &commpoolEmulatorRange::address);
  if (after == by_address.begin()) return false;
  const commpoolEmulatorRange& other = *std::prev(after);
  return range.address + range.bytes <= other.address + other.bytes;
}

}  // namespace

const char*& PlaceOfThisThread() {
  thread_local const char* place = nullptr;
  return place;
}

RaceChecker::RaceChecker(Logbook& logbook, Mode mode)
    : mode_(mode), logbook_(logbook), process_(RandomProcessNumber()), most_pieces_(kFewPieces) {}

// A new stream takes over a component when the host has waited for all its work: so the new stream's work comes later.
StreamClock RaceChecker::OpenStream() {
  StreamClock stream;
  if (!on()) return stream;
  const auto found =
      std::find_if(closed_.begin(), closed_.end(), [&](const Moment& last) { return host_->Covers(last); });
  if (found == closed_.end()) {
    stream.component = Mixed(process_ + ++streams_);
    return stream;
  }
  stream.component = found->component;
  stream.clock.Set(*found);
  closed_.erase(found);
  return stream;
}

void RaceChecker::CloseStream(const StreamClock& stream) {
  if (on()) closed_.push_back({stream.component, stream.clock.Of(stream.component)});
}

std::shared_ptr<AccessHistory> RaceChecker::HistoryOf(uint64_t physical, Memory memory) {
  if (!on()) return nullptr;
  std::weak_ptr<AccessHistory>& known = histories_[physical];
  std::shared_ptr<AccessHistory> history = memory == Memory::kImported ? known.lock() : nullptr;
  if (history == nullptr) history = std::make_shared<AccessHistory>();
  known = history;
  return history;
}

void RaceChecker::Submitted(Operation& operation) {
  if (!on()) return;
  operation.host = host_;
  operation.heard = heard(Asker::kAllocator);
  if (operation.reads.empty() && operation.writes.empty()) return;
  NotePlace(operation);
  if (blocks_.empty() || operation.effect == Operation::Effect::kEndsBlock) return;
  for (const auto* ranges : {&operation.reads, &operation.writes}) {
    for (const commpoolEmulatorRange& range : *ranges) NoteBlock(operation, blocks_.At(range.address));
  }
  const bool replayed = operation.origin == Operation::Origin::kReplayed;
  CheckBlocks(operation, replayed ? BlockTable::Ends::kCountedBefore : BlockTable::Ends::kCount);
}

void RaceChecker::Captured(Operation& operation) {
  if (!on() || blocks_.empty() || (operation.reads.empty() && operation.writes.empty())) return;
  NotePlace(operation);
  CheckBlocks(operation, BlockTable::Ends::kCount);
}

void RaceChecker::CheckBlocks(const Operation& operation, BlockTable::Ends ends) {
  for (const auto* ranges : {&operation.reads, &operation.writes}) {
    for (const commpoolEmulatorRange& range : *ranges) {
      if (const std::optional<BlockMisuse> misuse = blocks_.Check(range, ends)) {
        logbook_.Report(misuse->rule, DescribeMisuse(operation, range, misuse->details));
      }
    }
  }
}

void RaceChecker::Started(Operation& operation, const StreamClock& stream) {
  if (!on()) return;
  Clock& clock = operation.clock;
  clock.Join(stream.clock);
  for (const auto& other : operation.after) clock.Join(other->clock);
  for (const auto& marker : operation.waits) clock.Join(marker->clock);
  clock.Join(*operation.host);
  operation.host = nullptr;
  operation.component = stream.component;
  clock.Set({stream.component, clock.Of(stream.component) + kTicks});
}

void RaceChecker::Touched(const std::shared_ptr<Operation>& operation, AddressSpace& addresses) {
  if (!on()) return;
  std::vector<commpoolEmulatorRange> written = operation->writes;
  std::ranges::sort(written, {}, &commpoolEmulatorRange::address);
  for (const commpoolEmulatorRange& range : operation->reads) {
    // A write finds every conflict that a read of the same bytes would find, so the read is skipped.
    if (!IsWithin(range, written)) Touch(AccessKind::kRead, range, operation, addresses);
  }
  for (const commpoolEmulatorRange& range : operation->writes) Touch(AccessKind::kWrite, range, operation, addresses);
  operation->heard = nullptr;
  PruneWhereLarge();
}

void RaceChecker::Touch(AccessKind kind, const commpoolEmulatorRange& range,
                        const std::shared_ptr<Operation>& operation, AddressSpace& addresses) {
  const Moment end{operation->component, operation->clock.Of(operation->component)};
  const Moment moment{end.component, kind == AccessKind::kWrite ? end.count : end.count - 1};
  const Clock& heard = HeardOf(*operation, range.address);
  const auto joined = &heard == &operation->clock ? nullptr : Joined(operation->clock, heard);
  const Clock& clock = joined == nullptr ? heard : *joined;
  for (const MappedRange* mapping : addresses.Covering(range.address, range.bytes)) {
    AccessHistory* const history = mapping->physical->history.get();
    if (history == nullptr) continue;
    const uint64_t begin = std::max(range.address, mapping->address) - mapping->address;
    const uint64_t stop = std::min<uint64_t>(range.address + range.bytes - mapping->address, mapping->bytes);
    const size_t before = history->size();
    if (operation->effect == Operation::Effect::kEndsBlock) {
      history->End(begin, stop, {operation, moment, mapping->address}, clock, conflicts_);
    } else {
      history->Record(kind, begin, stop, {operation, moment, mapping->address}, clock, conflicts_);
    }
    pieces_ += history->size() - before;
    for (const Conflict& conflict : conflicts_) {
      if (operation->reported_with.insert(conflict.earlier.operation->sequence).second) {
        logbook_.Report("race", DescribeRace(*operation, kind, mapping->address, conflict));
      }
    }
    conflicts_.clear();
  }
}

void RaceChecker::Ended(const Operation& operation, StreamClock& stream) {
  if (!on()) return;
  stream.clock = operation.clock;
  if (operation.marker != nullptr) operation.marker->clock = operation.clock;
}

void RaceChecker::Heard(const Clock& clock) {
  if (!on()) return;
  const CallStack callers = CallStack::Capture();
  bool by_program = true;
  for (auto& [asker, heard] : heard_) {
    if (!callers.IsOf(asker)) continue;
    Learn(heard, clock);
    by_program = false;
  }
  if (by_program) HostWaitedFor(clock);
}

void RaceChecker::LetPyTorchsKnowWhatPoolsHave() { Learn(heard_.at(Asker::kAllocator), *heard_.at(Asker::kPools)); }

void RaceChecker::HostWaitedFor(const Clock& clock) {
  if (!on()) return;
  for (auto& [asker, heard] : heard_) Learn(heard, clock);
  if (host_->Covers(clock)) return;
  if (host_.use_count() > 1) earlier_host_.push_back(host_);
  host_ = Joined(*host_, clock);
}

void RaceChecker::Unmapping(CUdeviceptr address, uint64_t bytes, AddressSpace& addresses) {
  if (!on()) return;
  if (!blocks_.IsAsleep(address)) blocks_.Forget(address, bytes);
  std::vector<Conflict> open;
  const auto heard = Joined(*heard_.at(Asker::kAllocator), *heard_.at(Asker::kPools));
  for (const MappedRange* mapping : addresses.Touching(address, bytes)) {
    const AccessHistory* const history = mapping->physical->history.get();
    if (history == nullptr) continue;
    for (Conflict& access : history->NotCoveredBy(*heard, mapping->address)) open.push_back(std::move(access));
  }
  if (!open.empty()) logbook_.Report("unmapped before the host waited", DescribeOpenAccesses(open));
}

Clock RaceChecker::Contribution(const Operation& operation) const {
  Clock clock = operation.clock;
  if (on()) clock.Set({operation.component, clock.Of(operation.component) - 1});
  return clock;
}

// Every operation that starts from now on knows at least this.
std::shared_ptr<const Clock> RaceChecker::Floor() {
  while (!earlier_host_.empty()) {
    if (std::shared_ptr<const Clock> earliest = earlier_host_.front().lock()) return earliest;
    earlier_host_.pop_front();
  }
  return host_;
}

void RaceChecker::PruneWhereLarge() {
  if (pieces_ < most_pieces_) return;
  const std::shared_ptr<const Clock> floor = Floor();
  pieces_ = 0;
  std::erase_if(histories_, [&](const auto& entry) {
    const std::shared_ptr<AccessHistory> history = entry.second.lock();
    if (history == nullptr) return true;
    history->Prune(*floor);
    pieces_ += history->size();
    return false;
  });
  most_pieces_ = std::max(kFewPieces, 2 * pieces_);
}

}  // namespace commpool::internal::emulator
