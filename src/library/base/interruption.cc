#include "src/library/base/interruption.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "src/library/base/user_function.h"

namespace commpool::internal {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kSlice{50};
constexpr UserFunctionKind kHandler{.name = "a handler of a signal", .may_free = true};

struct Exception {
  void* type = nullptr;
  void* value = nullptr;
  void* traceback = nullptr;
};

// Functions of Python's stable interface, which a program that is no Python does not have.
class Python {
 public:
  static Python& Get() {
    static Python python;
    return python;
  }

  // Runs the handlers of the signals that have come. Whether one raised an exception that Python has not seen yet.
  bool HandlerRaised() {
    if (!whole_ || is_initialised_() == 0) return false;
    if (raised_.load(std::memory_order_acquire)) return true;
    const int held = take_lock_();
    const bool raised = RunHandlers() != 0 && Keep();
    give_lock_(held);
    return raised;
  }

 private:
  Python() {
    whole_ = Find("Py_IsInitialized", is_initialised_) && Find("PyGILState_Ensure", take_lock_) &&
             Find("PyGILState_Release", give_lock_) && Find("PyErr_CheckSignals", check_signals_) &&
             Find("PyErr_Fetch", fetch_) && Find("PyErr_Restore", restore_) &&
             Find("Py_AddPendingCall", add_pending_call_);
  }

  template <typename Function>
  static bool Find(const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
    return function != nullptr;
  }

  int RunHandlers() {
    const UserFunction running(kHandler);
    return check_signals_();
  }

  // No exception may stand while C returns to Python, so Python raises it itself at its next line.
  bool Keep() {
    auto exception = std::make_unique<Exception>();
    fetch_(&exception->type, &exception->value, &exception->traceback);
    raised_.store(true, std::memory_order_release);
    if (add_pending_call_(RaiseAgain, exception.get()) == 0) {
      exception.release();
    } else {  // Python has no room for one more call: the wait ends without that exception
      raised_.store(false, std::memory_order_release);
    }
    return true;
  }

  static int RaiseAgain(void* kept) {
    const std::unique_ptr<Exception> exception(static_cast<Exception*>(kept));
    Get().raised_.store(false, std::memory_order_release);
    Get().restore_(exception->type, exception->value, exception->traceback);
    return -1;
  }

  bool whole_ = false;
  std::atomic<bool> raised_ = false;
  int (*is_initialised_)() = nullptr;
  int (*take_lock_)() = nullptr;
  void (*give_lock_)(int) = nullptr;
  int (*check_signals_)() = nullptr;
  void (*fetch_)(void**, void**, void**) = nullptr;
  void (*restore_)(void*, void*, void*) = nullptr;
  int (*add_pending_call_)(int (*)(void*), void*) = nullptr;
};

// Of the call that this thread does a part of; null where it does none.
thread_local constinit const std::atomic<bool>* call_interrupted = nullptr;

// Python runs handlers on its main thread alone.
bool IsInterrupted() {
  if (call_interrupted != nullptr && *call_interrupted) return true;
  return getpid() == gettid() && Python::Get().HandlerRaised();
}

}  // namespace

WaitSlices::WaitSlices(Moment deadline) : deadline_(deadline), end_(std::min(deadline, Clock::now() + kSlice)) {}

bool WaitSlices::Over() {
  const Moment now = Clock::now();
  if (now >= deadline_) return true;
  if (now < end_) return false;
  end_ = std::min(deadline_, now + kSlice);
  return IsInterrupted();
}

InterruptibleParts::Part::Part(const InterruptibleParts& call) { call_interrupted = &call.interrupted_; }

InterruptibleParts::Part::~Part() { call_interrupted = nullptr; }

void InterruptibleParts::Await(const std::future<void>& ended) {
  WaitSlices slices(WaitSlices::Moment::max());
  while (ended.wait_until(slices.end()) != std::future_status::ready) {
    if (slices.Over()) interrupted_ = true;
  }
}

}  // namespace commpool::internal
