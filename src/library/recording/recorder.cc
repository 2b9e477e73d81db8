#include "src/library/recording/recorder.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <type_traits>
#include <utility>
#include <variant>

#include "src/library/base/environment.h"
#include "src/library/base/fields.h"
#include "src/library/base/interface.h"
#include "src/library/base/log.h"
#include "src/library/base/start_thread.h"
#include "src/library/base/try.h"
#include "src/library/recording/books.h"

namespace commpool::internal::recording {

namespace {

// No entry takes more together with its texts, of which it has three at most.
constexpr size_t kLargestEntry = 4 * Texts::kMostBytes;

// The numbers of the texts that an entry names.
template <typename Entry>
std::array<uint64_t, 3> TextsOf(const Entry& entry) {
  if constexpr (requires { entry.name; }) {
    return {entry.name, entry.kind, entry.budget};
  } else if constexpr (requires { entry.stack; }) {
    return {entry.stack};
  } else if constexpr (requires { entry.failure; }) {
    return {entry.failure};
  } else if constexpr (requires { entry.text + uint64_t{0}; }) {
    return {entry.text};
  } else {
    return {};
  }
}

// -1 where the text is no number.
int64_t NumberOf(const std::string& text) {
  int64_t number = -1;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
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
  Begin(std::move(file), options);
  {
    MutexLock one(sample_mutex_);
    sample_ = std::move(sample);
  }
  thread_ = COMMPOOL_TRY(StartThread("the recorder", [this] { Run(); }));
  on_.store(true, std::memory_order_release);
  return Status();
}

// Nothing is left of an earlier recording.
void Recorder::Begin(RecordingFile file, const RecorderOptions& options) {
  MutexLock one(file_mutex_);
  MutexLock lock(mutex_);
  file_.emplace(std::move(file));
  stack_.store(options.stack, std::memory_order_relaxed);
  only_.store(options.only, std::memory_order_relaxed);
  times_.fetch_add(1, std::memory_order_relaxed);
  ending_ = false;
  books_ = std::make_unique<Books>();
  begun_pages_ = 0;
  chapter_ = 0;
  retold_pages_ = 0;
  lost_ = 0;
  warned_ = false;
  broken_ = false;
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
      while (!ending_ && !HalfFull() && wake_.WaitUntil(mutex_, end)) {
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
    if (status.ok() && std::exchange(broken_, false)) chapter_ = 0;
    if (!ended) return;
    if (!status.ok()) lost_ += page->entries;
    broken_ = broken_ || !status.ok();
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
template <typename Entry>
void Recorder::Add(const Entry& entry) {
  if (HasRoom() || FindRoom()) {
    if (lost_ != 0) Put(Lost{std::exchange(lost_, 0)}, Now());
    PutWithTexts(entry, Now());
  } else {
    ++lost_;
  }
  books_->live.Apply(entry, Now());
}

bool Recorder::HalfFull() const { return books_->pages.size() >= Page::kMost / 2; }

bool Recorder::HasRoom() {
  return chapter_ != 0 && !books_->pages.empty() && books_->pages.back().used + kLargestEntry <= kEntryRoom;
}

// A chapter has at least as many pages of news as of what it retells.
bool Recorder::FindRoom() {
  if (books_->pages.size() >= Page::kMost) return false;
  if (HalfFull()) wake_.NotifyAll();
  const uint64_t next = begun_pages_ + 1;
  if (chapter_ == 0 || next - chapter_ >= std::max(file_->pages_of_a_chapter(), 2 * retold_pages_)) {
    BeginChapter();
  } else {
    BeginPage(Now());
  }
  return true;
}

// As many pages as it takes: without all that lives the chapter would be of no use.
void Recorder::BeginChapter() {
  const uint64_t now = Now();
  chapter_ = begun_pages_ + 1;
  BeginPage(now);
  chapters_.fetch_add(1, std::memory_order_relaxed);
  books_->live.Retell(now, [&](const auto& entry) {
    mutex_.AssertHeld();
    if (!HasRoom()) BeginPage(now);
    PutWithTexts(entry, now);
  });
  if (!HasRoom()) BeginPage(now);
  retold_pages_ = begun_pages_ + 1 - chapter_;
}

void Recorder::BeginPage(uint64_t time) {
  books_->pages.push_back({.header = {.number = ++begun_pages_, .chapter = chapter_, .time = time}, .last = time});
}

template <typename Entry>
void Recorder::PutWithTexts(const Entry& entry, uint64_t time) {
  for (const uint64_t text : TextsOf(entry)) {
    if (!books_->texts.MustTell(text, chapter_)) continue;
    Put(Text{text, books_->texts.TextOf(text)}, time);
    books_->texts.Told(text, chapter_);
  }
  Put(entry, time);
}

template <typename Entry>
void Recorder::Put(const Entry& entry, uint64_t time) {
  Page& page = books_->pages.back();
  FieldWriter writer(page.bytes.get() + page.used, kEntryRoom - page.used);
  writer.Write(kKindOf<Entry>);
  writer.Write(time - page.last);
  writer.Write(entry);
  if (!writer.fits()) return;
  page.used += writer.used();
  page.last = time;
  // Where the page is lost, what it told to be lost is lost again.
  if constexpr (std::is_same_v<Entry, Lost>) {
    page.entries += entry.entries;
  } else {
    ++page.entries;
  }
}

}  // namespace commpool::internal::recording
