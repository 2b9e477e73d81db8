#include "src/interpose/audit/audit.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>

#include "src/interpose/audit/report.h"
#include "src/interpose/audit/signal_watch.h"
#include "src/interpose/preload/process_name.h"

namespace commpool::audit {

Audit& Audit::Get() {
  static Audit* const audit = [] {
    auto* const made = new Audit(Settings::FromText(std::getenv("COMMPOOL_AUDIT")));
    if (made->settings.asked) std::atexit(&SayAtExit);
    return made;
  }();
  return *audit;
}

void Audit::SeenBy(Source source, const std::string& why) {
  const std::lock_guard<std::mutex> lock(mutex_);
  source_.store(source, std::memory_order_release);
  why_source_ = why;
}

std::string Audit::HowSeen() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (source() == Source::kCupti) return "by CUPTI's callbacks, NCCL by a preload";
  return "by a preload" + (why_source_.empty() ? "" : " (" + why_source_ + ")");
}

void Audit::NoteInitialised(const std::string& failure) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    failure_ = failure;
    if (!failure.empty() || initialised_.exchange(true)) return;
    preload::TakeBooks();
    if (!settings.asked) return;
    if (source() == Source::kPreload && settings.by_cupti && why_source_.empty()) {
      why_source_ = "this driver injects nothing";
    }
  }
  // Registered after the driver's own, so it runs before the driver shuts down.
  std::atexit(&ReportAtExit);
  ReportOnSignals(settings.signal);
}

void Audit::Report(const std::string& reason) { Write(Gather(*this, reason), settings.record); }

void Audit::CheckLimit(int device) {
  if (settings.limit_bytes == 0 || device < 0 || device > 63) return;
  const int64_t bytes = ledger.DeviceBytes(device);
  const uint64_t bit = uint64_t{1} << device;
  if (bytes <= static_cast<int64_t>(settings.limit_bytes)) {
    over_limit_.fetch_and(~bit);
  } else if ((over_limit_.fetch_or(bit) & bit) == 0) {
    Report("device " + std::to_string(device) + " is over the limit");
  }
}

void Audit::NoteOutOfMemory(const std::string& call) {
  if (!out_of_memory_.exchange(true)) Report("out of memory: " + call);
}

// A child forked from a process that used CUDA has the books of its parent, and no driver. Who asked for nothing only
// looked for devices, as launchers do.
void Audit::ReportAtExit() {
  if (!preload::IsForked() && !Get().ledger.Rows().empty()) Get().Report("exit");
}

void Audit::SayAtExit() {
  const Audit& audit = Get();
  if (audit.settings.started_by != getpid() || !audit.ledger.Rows().empty()) return;
  rusage started = {};
  getrusage(RUSAGE_CHILDREN, &started);
  if (started.ru_maxrss != 0) return;  // a launcher: the programs that it has awaited tell for themselves
  const std::lock_guard<std::mutex> lock(audit.mutex_);
  preload::Say("audit", audit.failure_.empty() ? "this process asked for no memory of a device"
                                               : "this process has no GPU: cuInit failed: " + audit.failure_);
}

}  // namespace commpool::audit
