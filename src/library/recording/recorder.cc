#include "src/library/recording/recorder.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <variant>

#include "src/library/base/environment.h"
#include "src/library/base/interface.h"
#include "src/library/base/log.h"
#include "src/library/base/start_thread.h"
#include "src/library/base/try.h"
#include "src/library/recording/books.h"

namespace commpool::internal::recording {

namespace {

// -1 where the text is no number of a rank.
int NumberOf(const std::string& text) {
  int number = -1;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return std::max(number, -1);
}

// "train.py" of "python3 -u train.py": what Python runs says more than Python's own name.
std::string ProgramName() {
  std::ifstream words("/proc/self/cmdline");
  std::string name;
  std::string word;
  std::getline(words, name, '\0');
  name.erase(0, name.rfind('/') + 1);
  if (!name.starts_with("python")) return name;
  for (std::string last; std::getline(words, word, '\0') && word != "-c"; last = word) {
    if (!word.starts_with('-') && last != "-W" && last != "-X") return word.substr(word.rfind('/') + 1);
  }
  return name;
}

// The rank is what the launcher says: mpirun, torchrun, srun.
ProcessFacts FactsOfThisProcess(uint64_t limit_bytes) {
  const auto wall = std::chrono::system_clock::now().time_since_epoch();
  return {.rank = NumberOf(Environment::Get().rank),
          .ranks = NumberOf(Environment::Get().ranks),
          .process = static_cast<uint64_t>(getpid()),
          .wall_clock = static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(wall).count()),
          .steady_clock = Now(),
          .limit_bytes = limit_bytes,
          .host = HostName(),
          .program = ProgramName(),
          .boot = BootOfHost()};
}

}  // namespace

// What is left of a segment before and behind the range stays, with the segment's time.
void LiveState::Apply(const SegmentGone& gone, uint64_t) {
  const uint64_t end = gone.address + gone.bytes;
  auto next = segments_.upper_bound(gone.address);
  if (next != segments_.begin()) --next;
  while (next != segments_.end() && next->first < end) {
    const Dated<SegmentMade> was = next->second;
    const uint64_t was_end = was.entry.address + was.entry.bytes;
    next = segments_.erase(next);
    const auto keep = [&](uint64_t from, uint64_t to) {
      if (from >= to) return;
      Dated<SegmentMade> rest = was;
      rest.entry.address = from;
      rest.entry.bytes = to - from;
      segments_.emplace(from, rest);
    };
    keep(was.entry.address, std::min(gone.address, was_end));
    keep(std::max(end, was.entry.address), was_end);
  }
}

Recorder::Recorder() : books_(std::make_unique<Books>()) {}

Recorder::~Recorder() { Stop(); }

Status Recorder::Start(const RecorderOptions& options, std::function<void()> sample) {
  if (on()) return FailedPrecondition("a recording is under way, in ", file_->path());
  RecordingFile file = COMMPOOL_TRY(RecordingFile::Make(options.directory, FactsOfThisProcess(options.limit_bytes)));
  {
    MutexLock one(file_mutex_);
    MutexLock lock(mutex_);
    file_.emplace(std::move(file));
    stack_.store(options.stack, std::memory_order_relaxed);
    only_.store(options.only, std::memory_order_relaxed);
    times_.fetch_add(1, std::memory_order_relaxed);
    ending_ = false;
    books_ = std::make_unique<Books>();  // nothing is left of an earlier recording
    warned_ = false;
  }
  {
    MutexLock one(sample_mutex_);
    sample_ = std::move(sample);
  }
  thread_ = COMMPOOL_TRY(StartThread("the recorder", [this] { Run(); }));
  on_.store(true, std::memory_order_release);
  return Status();
}

void Recorder::Stop() {
  if (forked_.InChild()) {
    if (thread_.joinable()) thread_.detach();  // the child has no such thread
    return;
  }
  {
    MutexLock lock(mutex_);
    ending_ = true;
  }
  wake_.NotifyAll();
  if (thread_.joinable()) thread_.join();
  if (!on()) return;
  Flush();
  on_.store(false, std::memory_order_release);
}

void Recorder::Flush() {
  if (!on()) return;
  Sample();
  Write();
}

void Recorder::Sample() {
  MutexLock one(sample_mutex_);
  sample_();
}

Recorder::Clock::time_point Recorder::NextSample(Clock::time_point began, Clock::time_point ended) {
  return std::max(began + kSlice, ended + kRest * (ended - began));
}

void Recorder::Run() {
  Clock::time_point next = Clock::now() + kSlice;
  for (;;) {
    {
      const Clock::time_point end = Clock::now() + kSlice;
      MutexLock lock(mutex_);
      while (!ending_ && !books_->HalfFull() && wake_.WaitUntil(mutex_, end)) {
      }
      if (ending_) return;
    }
    const Clock::time_point began = Clock::now();
    if (began >= next) {
      Sample();
      next = NextSample(began, Clock::now());
    }
    Write();
  }
}

// Entries go on coming to the last page while it is written: what is written of it stays as it is.
void Recorder::Write() {
  MutexLock one(file_mutex_);
  for (;;) {
    Page* page = nullptr;
    size_t used = 0;
    bool ended = false;
    {
      MutexLock lock(mutex_);
      if (books_->pages.empty()) return;
      page = &books_->pages.front();
      used = page->used;
      ended = books_->pages.size() > 1;
    }
    const bool nothing_new = used == page->written;
    const Status status = nothing_new ? Status() : file_->Write(page->header, {page->bytes.get(), used}, page->written);
    if (!status.ok() && !std::exchange(warned_, true)) {
      Log(LogLevel::kWarning, "the recording is not whole: " + status.message());
    }
    MutexLock lock(mutex_);
    if (status.ok()) page->written = used;
    // The disk takes pages again: what comes next can be read with a chapter of its own.
    if (status.ok() && std::exchange(books_->broken, false)) books_->chapter = 0;
    if (!ended) return;
    if (!status.ok()) books_->lost += page->entries;
    books_->broken = books_->broken || !status.ok();
    books_->pages.pop_front();
  }
}

void Recorder::Record(FunctionRef<Event(Texts& texts)> make) {
  if (!on()) return;
  MutexLock lock(mutex_);
  if (on_.load(std::memory_order_relaxed))
    std::visit([this](const auto& entry) COMMPOOL_REQUIRES(mutex_) { Add(entry); }, make(books_->texts));
}

void Recorder::Record(const Event& event) {
  Record([&](Texts&) { return event; });
}

void Recorder::EndHandle(SpanKind kind, uint64_t handle) { Record(SpanEnded{.span = SpanOfHandle(kind, handle)}); }

void Recorder::RecordFree(uint64_t address) {
  if (!on()) return;
  MutexLock lock(mutex_);
  if (books_->live.HasBlock(address)) Add(BlockFreed{address});
}

// What lives is known also where the entry is lost: the next chapter tells it.
void Recorder::Add(const auto& entry) {
  if (books_->HasRoom() || FindRoom()) {
    if (books_->lost != 0) books_->Put(Lost{std::exchange(books_->lost, 0)}, Now());
    books_->PutWithTexts(entry, Now());
  } else {
    ++books_->lost;
  }
  books_->live.Apply(entry, Now());
}

// A chapter has at least as many pages of news as of what it retells.
bool Recorder::FindRoom() {
  if (books_->pages.size() >= Page::kMost) return false;
  if (books_->HalfFull()) wake_.NotifyAll();
  const uint64_t next = books_->begun_pages + 1;
  if (books_->chapter == 0 ||
      next - books_->chapter >= std::max(file_->pages_of_a_chapter(), 2 * books_->retold_pages)) {
    chapters_.fetch_add(1, std::memory_order_relaxed);
    books_->BeginChapter(Now());
  } else {
    books_->BeginPage(Now());
  }
  return true;
}

}  // namespace commpool::internal::recording
