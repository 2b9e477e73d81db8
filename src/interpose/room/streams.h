// The streams of this process, so that one can ask whether any of them still works, or captures: by queries alone. Any
// thread.
#pragma once

#include <cuda.h>

#include <map>
#include <mutex>
#include <vector>

#include "src/interpose/audit/real_driver.h"

namespace commpool::run {

// Other threads may capture in the usual mode, which forbids questions to every thread that has not relaxed.
class Relaxed {
 public:
  Relaxed() { Exchange(); }
  ~Relaxed() { Exchange(); }
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;

 private:
  void Exchange() {
    const auto exchange = audit::RealDriver::Get().cuThreadExchangeStreamCaptureMode;
    if (exchange != nullptr) exchange(&mode_);
  }

  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

// The default streams of other threads (CU_STREAM_PER_THREAD) are seen nowhere.
class Streams {
 public:
  static Streams& Get();

  void MadeContext(CUcontext context, int device);
  // It ends, or has ended, and its streams with it.
  void EndedContext(CUcontext context);
  // Nobody retains the device's primary context any more, or it was reset.
  void EndedDevice(int device);
  void Made(CUstream stream);
  // Before its end: what it was given goes on after that, and counts.
  void Ends(CUstream stream);

  // A capture forbids to make and free memory, and to ask for progress.
  bool AnyCaptures();
  // Whether nothing works on any device. REQUIRES: nothing captures.
  bool AllIdle();

 private:
  struct Left {
    CUcontext context;
    CUevent event;  // behind the work of a stream that is gone
  };

  bool IsIdle(CUcontext context);
  bool HasPassed(const Left& left);

  std::mutex mutex_;  // of what is below: a stream that is asked does not end meanwhile
  std::map<CUcontext, int> devices_;
  std::map<CUstream, CUcontext> streams_;
  std::vector<Left> left_;
};

}  // namespace commpool::run
