#include "src/library/registration/registrar_book.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <thread>

#include "src/library/base/bytes.h"
#include "src/library/base/log.h"
#include "src/library/base/printable.h"
#include "src/library/base/start_thread.h"
#include "src/library/base/try.h"
#include "src/library/base/user_function.h"

namespace commpool::internal {

namespace {

constexpr UserFunctionKind kFunctionOfARegistrar{"a registrar"};
constexpr size_t kWhyBytes = 1024;

// Codes that tell ranks of a failed channel or communicator must not come from a registrar.
StatusCode CodeOf(commpool_status answer) {
  switch (answer) {
    case COMMPOOL_INVALID_ARGUMENT:
    case COMMPOOL_OUT_OF_MEMORY:
    case COMMPOOL_NOT_SUPPORTED:
      return static_cast<StatusCode>(answer);
    default:
      return StatusCode::kFailedPrecondition;
  }
}

// Says in the log that a function of the program takes too long, while it still runs. Nobody can end such a function,
// and what waits behind it would be a riddle. Best effort: a host without a thread goes without the line.
class [[nodiscard]] Overdue {
 public:
  // `what` begins the line that comes once the deadline has passed.
  Overdue(const std::string& what, uint64_t deadline_ms) {
    Result<std::thread> watcher = StartThread(
        "the watcher of a function", [line = what + " has not returned after " + std::to_string(deadline_ms) +
                                             " ms; the pool's calls that register or unmap wait for it",
                                      over = over_.get_future().share(), deadline_ms] {
          if (over.wait_for(std::chrono::milliseconds(deadline_ms)) == std::future_status::ready) return;
          Log(LogLevel::kWarning, line);
        });
    if (watcher.ok()) watcher_ = std::move(*watcher);
  }
  ~Overdue() {
    if (!watcher_.joinable()) return;
    over_.set_value();
    watcher_.join();
  }

 private:
  std::promise<void> over_;
  std::thread watcher_;
};

void* PointerTo(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

}  // namespace

RegistrarBook::Claim::Claim(RegistrarBook& book, const std::vector<SegmentToRegister>& segments) : book_(book) {
  MutexLock lock(book_.mutex_);
  book_.claimed_ = segments;
}

RegistrarBook::Claim::~Claim() {
  MutexLock lock(book_.mutex_);
  book_.claimed_.clear();
}

template <typename Function>
Status RegistrarBook::Call(const Registrar& registrar, const std::string& what, Function function) const {
  const std::string title = "registrar " + registrar.name + ": " + what;
  char why[kWhyBytes] = "";
  commpool_status answer = COMMPOOL_OK;
  {
    const Overdue watched(title, deadline_ms_);
    COMMPOOL_TRY(CallUserFunction(kFunctionOfARegistrar, title, [&] { answer = function(why, sizeof(why)); }));
  }
  if (answer == COMMPOOL_OK) return Status();
  why[kWhyBytes - 1] = 0;
  const std::string reason = why[0] == 0 ? "it gave no reason" : Printable(why, kWhyBytes);
  return Failure(CodeOf(answer), title, " failed: ", reason);
}

std::vector<RegistrarBook::Member*> RegistrarBook::Members() const {
  MutexLock lock(mutex_);
  std::vector<Member*> members;
  for (const std::unique_ptr<Member>& member : members_) members.push_back(member.get());
  return members;
}

RegistrarBook::Member* RegistrarBook::Find(const std::string& name) const {
  MutexLock lock(mutex_);
  const auto found = std::ranges::find_if(members_, [&](const auto& member) { return member->registrar.name == name; });
  return found == members_.end() ? nullptr : found->get();
}

bool RegistrarBook::Has(const std::string& name) const { return Find(name) != nullptr; }

Status RegistrarBook::RegisterOne(Member& member, const SegmentToRegister& segment) {
  Range range{segment.address, segment.bytes};
  const commpool_registrar& functions = member.registrar.functions;
  COMMPOOL_TRY(Call(member.registrar, "registering " + FormatBytes(segment.bytes), [&](char* why, size_t why_bytes) {
    return functions.add(functions.context, PointerTo(range.address), range.bytes, &range.handle, why, why_bytes);
  }));
  MutexLock lock(mutex_);
  member.ranges.insert_or_assign(segment.index, range);
  return Status();
}

Status RegistrarBook::DeregisterOne(Member& member, uint32_t index) {
  const auto found = member.ranges.find(index);
  if (found == member.ranges.end()) return Status();
  const Range range = found->second;
  const commpool_registrar& functions = member.registrar.functions;
  COMMPOOL_TRY(Call(member.registrar, "deregistering " + FormatBytes(range.bytes), [&](char* why, size_t why_bytes) {
    return functions.remove(functions.context, PointerTo(range.address), range.bytes, range.handle, why, why_bytes);
  }));
  MutexLock lock(mutex_);
  member.ranges.erase(index);
  return Status();
}

Status RegistrarBook::Add(Registrar registrar, const commpool_segment_traits& traits,
                          const std::vector<SegmentToRegister>& segments) {
  if (Has(registrar.name)) return FailedPrecondition("the pool has a registrar named ", registrar.name, " already");
  const commpool_registrar& functions = registrar.functions;
  if (functions.check != nullptr) {
    COMMPOOL_TRY(Call(registrar, "taking such segments", [&](char* why, size_t why_bytes) {
      return functions.check(functions.context, &traits, why, why_bytes);
    }));
  }
  auto member = std::make_unique<Member>(Member{.registrar = std::move(registrar)});
  Member& added = *member;
  {
    MutexLock lock(mutex_);
    members_.push_back(std::move(member));
  }
  for (const SegmentToRegister& segment : segments) {
    Status status = RegisterOne(added, segment);
    if (status.ok()) continue;
    const Status undone = Remove(added.registrar.name, Farewell::kUntold);
    return undone.ok() ? status : Failure(status.code(), status.message(), "; then ", undone.message());
  }
  return Status();
}

Status RegistrarBook::Remove(const std::string& name, Farewell farewell) {
  Member* const member = Find(name);
  if (member == nullptr) return Status();
  const std::map<uint32_t, Range> ranges = member->ranges;
  COMMPOOL_TRY(FirstFailureOf(ranges, [&](const auto& range) { return DeregisterOne(*member, range.first); }));
  const std::string title = "registrar " + name + ": its end";
  const commpool_registrar functions = member->registrar.functions;
  {
    MutexLock lock(mutex_);  // `name` may be the member's own
    std::erase_if(members_, [&](const auto& one) { return one.get() == member; });
  }
  if (farewell == Farewell::kUntold || functions.end == nullptr) return Status();
  const Overdue watched(title, deadline_ms_);
  return CallUserFunction(kFunctionOfARegistrar, title, [&] { functions.end(functions.context); });
}

Status RegistrarBook::RemoveAll() {
  return FirstFailureOf(Members(), [&](Member* member) { return Remove(member->registrar.name); });
}

Result<RegistrarBook::Made> RegistrarBook::RegisterLacking(const std::vector<SegmentToRegister>& segments) {
  Made made;
  for (Member* const member : Members()) {
    for (const SegmentToRegister& segment : segments) {
      if (member->ranges.contains(segment.index)) continue;
      if (Status status = RegisterOne(*member, segment); !status.ok()) {
        Undo(made);
        return status;
      }
      made.emplace_back(member->registrar.name, segment.index);
    }
  }
  return made;
}

void RegistrarBook::Undo(const Made& made) {
  for (const auto& [name, index] : made) {
    if (Member* const member = Find(name)) static_cast<void>(DeregisterOne(*member, index));
  }
}

Status RegistrarBook::DeregisterSegment(uint32_t index) {
  return FirstFailureOf(Members(), [&](Member* member) { return DeregisterOne(*member, index); });
}

void RegistrarBook::Renumber(const std::vector<SegmentToRegister>& segments) {
  MutexLock lock(mutex_);
  for (const std::unique_ptr<Member>& member : members_) {
    std::map<uint32_t, Range> before = std::exchange(member->ranges, {});
    for (const SegmentToRegister& segment : segments) {
      const auto found =
          std::ranges::find_if(before, [&](const auto& one) { return one.second.address == segment.address; });
      if (found != before.end()) member->ranges.emplace(segment.index, found->second);
    }
  }
}

bool RegistrarBook::IsRegistered(uint32_t index) const {
  MutexLock lock(mutex_);
  return std::ranges::find(claimed_, index, &SegmentToRegister::index) != claimed_.end() ||
         std::ranges::any_of(members_, [&](const auto& member) { return member->ranges.contains(index); });
}

uint64_t RegistrarBook::registrations() const {
  MutexLock lock(mutex_);
  uint64_t count = 0;
  for (const std::unique_ptr<Member>& member : members_) count += member->ranges.size();
  return count;
}

uint64_t RegistrarBook::pending(uint64_t segments) const {
  MutexLock lock(mutex_);
  uint64_t count = 0;
  for (const std::unique_ptr<Member>& member : members_)
    count += segments - std::min<uint64_t>(segments, member->ranges.size());
  return count;
}

}  // namespace commpool::internal
