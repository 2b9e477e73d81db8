// A thread of a random program, which makes its calls one at a time: so per-thread default streams differ while the
// program is the same at each run.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace commpool::cli::stress_order {

class ProgramThread {
 public:
  explicit ProgramThread(int number) : number_(number), thread_([this] { Work(); }) {}
  ~ProgramThread() {
    Hand(nullptr, true);
    thread_.join();
  }
  ProgramThread(const ProgramThread&) = delete;
  ProgramThread& operator=(const ProgramThread&) = delete;

  int number() const { return number_; }

  // Returns once `call` has run on the thread.
  void Run(const std::function<void()>& call) {
    Hand(&call, false);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return call_ == nullptr; });
  }

 private:
  void Hand(const std::function<void()>* call, bool ends) {
    std::scoped_lock lock(mutex_);
    call_ = call;
    ends_ = ends;
    changed_.notify_all();
  }

  void Work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return call_ != nullptr || ends_; });
      if (ends_) return;
      lock.unlock();
      (*call_)();
      lock.lock();
      call_ = nullptr;
      changed_.notify_all();
    }
  }

  const int number_;
  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void()>* call_ = nullptr;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace commpool::cli::stress_order
