// The audit of this process: everything that the parts of the library share.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "src/interpose/audit/device_memory.h"
#include "src/interpose/audit/ledger.h"
#include "src/interpose/audit/loaded_objects.h"
#include "src/interpose/audit/physical_book.h"
#include "src/interpose/audit/settings.h"

namespace commpool::audit {

// Where calls of the driver are seen. NCCL's are seen by the preload alone.
enum class Source { kPreload, kCupti };

class Audit {
 public:
  // The process's own. Never destroyed: the driver is called until the very end.
  static Audit& Get();

  Audit(const Audit&) = delete;
  Audit& operator=(const Audit&) = delete;

  const Settings settings;
  LoadedObjects objects;
  Ledger ledger;
  PhysicalBook physical;
  DeviceMemory memory;

  Source source() const { return source_.load(std::memory_order_acquire); }
  void SeenBy(Source source, const std::string& why);
  // How calls are seen, and why so, for a report's first line.
  std::string HowSeen() const;

  // cuInit has ended. After the first success reports come: at the end, on a signal.
  void NoteInitialised(const std::string& failure);
  bool initialised() const { return initialised_.load(std::memory_order_acquire); }

  // Writes the table to stderr, and the record where there is one.
  void Report(const std::string& reason);
  // Reports where a device holds more than the limit, once until it holds less again.
  void CheckLimit(int device);
  // Reports the first call that failed for want of memory.
  void NoteOutOfMemory(const std::string& call);

 private:
  explicit Audit(const Settings& given) : settings(given) {}

  static void ReportAtExit();
  static void SayAtExit();

  std::atomic<Source> source_ = Source::kPreload;
  std::atomic<bool> initialised_ = false;
  std::atomic<bool> out_of_memory_ = false;
  std::atomic<uint64_t> over_limit_ = 0;  // a bit for each device
  mutable std::mutex mutex_;              // of what is below
  std::string why_source_;
  std::string failure_;  // of cuInit
};

}  // namespace commpool::audit
